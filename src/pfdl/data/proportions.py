"""The proportional-bias protocol of NICO: every context everywhere, but in proportions that change at test time."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pfdl.data.manifest import SIDES
from pfdl.data.sources import Sample

TRAIN_FRACTION = 0.6
"""Share of every class and context that goes to the training side."""

Cell = tuple[str, str]
Order = dict[Cell, list[str]]


class Rounds(NamedTuple):
    """How often a class can give its share to a set, and the context that runs out first."""

    number: int
    context: str
    available: int
    needed: int


class Ratio(NamedTuple):
    """So many images of the dominant context for so many of *each* minor context.

    Example:
        >>> Ratio.parse("5:1")
        Ratio(dominant=5, minor=1)
        >>> str(Ratio(1, 3))
        '1:3'
    """

    dominant: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Ratio:
        """Read ``"a:b"``; ValueError unless a and b are whole numbers from 1."""
        first, _, second = text.partition(":")
        if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in (first, second)):
            raise ValueError(f"the ratio is {text!r}; give dominant:minor as two whole numbers from 1, such as 5:1.")
        return cls(int(first), int(second))

    def __str__(self) -> str:
        return f"{self.dominant}:{self.minor}"


TEST_RATIOS = tuple(Ratio.parse(text) for text in ("1:5", "1:3", "1:1", "2:1", "3:1", "4:1", "5:1"))
"""The test sets of the paper's table."""


def split_by_proportion(
    samples: Sequence[Sample],
    ratio: Ratio,
    *,
    seed: int,
    validation_fraction: float,
    groups: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, set[str]], dict[str, str], list[str]]:
    """Split images in contexts, each picture once, by the protocol of NICO: see :func:`pfdl.data.make_split`.

    Returns:
        The side of every path, the paths of every set, the dominant context of every class, and notes.

    Raises:
        ValueError: If the images do not suffice for training.
    """
    sides = assign_parts(samples, seed, groups, TRAIN_FRACTION)
    dominant = _draw_dominant(samples, seed)
    order = {side: _shuffle(samples, sides, side, seed) for side in SIDES}
    sets = _draw_training(order["train"], dominant, ratio, validation_fraction)
    available, used = sum(map(len, order["train"].values())), len(sets["train"]) + len(sets["validation"])
    notes = []
    if used < available:
        notes.append(
            f"{used} of the {available} images on the training side are used, to reach {ratio}; the ratio 'natural' "
            "uses all of them."
        )
    lacking = set(dominant) - {sample.class_name for sample in samples if sample.path in sets["validation"]}
    if lacking and validation_fraction:
        names = ", ".join(map(repr, sorted(lacking)))
        notes.append(
            f"The validation set has no images of {names}: one round is all they suffice for, and it is trained on."
        )
    sets["test"] = {path for path, side in sides.items() if side == "test"}
    for test_ratio in TEST_RATIOS:
        rounds = _count_rounds(order["test"], dominant, test_ratio)
        if short := _describe_shortage(rounds):
            notes.append(f"There is no test set at {test_ratio}: {short} on the test side.")
        else:
            sets[f"test-{test_ratio}"] = _draw_rounds(order["test"], dominant, test_ratio, rounds)
    return sides, sets, dominant, notes


def assign_parts(
    samples: Sequence[Sample], seed: int, groups: Mapping[str, str], fraction: float, purpose: str = "side"
) -> dict[str, str]:
    """Divide the images of every class and context between ``"train"``, which gets a fraction, and ``"test"``.

    Whole groups go, the largest first, to the part that lacks the larger share of its quota. Another purpose is
    another draw.
    """
    cells: dict[Cell, int] = defaultdict(int)
    units: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        cells[_cell_of(sample)] += 1
        unit = ("group", groups[sample.path]) if sample.path in groups else ("image", sample.sha256)
        units[unit].append(sample)
    quotas = {"train": {cell: _quota(count, fraction) for cell, count in cells.items()}}
    quotas["test"] = {cell: count - quotas["train"][cell] for cell, count in cells.items()}
    missing = {side: dict(quota) for side, quota in quotas.items()}
    sides = {}
    for unit in sorted(units, key=lambda unit: (-len(units[unit]), _sort_key(seed, purpose, *unit))):
        side = max(
            SIDES,
            key=lambda side: sum(missing[side][_cell_of(s)] / max(1, quotas[side][_cell_of(s)]) for s in units[unit]),
        )
        for sample in units[unit]:
            sides[sample.path] = side
            missing[side][_cell_of(sample)] -= 1
    return sides


def _quota(count: int, fraction: float) -> int:
    """Return a share, rounded, but something for both parts wherever there are two images."""
    return 1 if count == 1 else min(max(int(fraction * count + 0.5), 1), count - 1)


def _draw_dominant(samples: Iterable[Sample], seed: int) -> dict[str, str]:
    contexts: dict[str, set[str]] = defaultdict(set)
    for sample in samples:
        contexts[sample.class_name].add(sample.context)
    return {
        name: min(contexts[name], key=lambda context: _sort_key(seed, "dominant", name, context))
        for name in sorted(contexts)
    }


def _shuffle(samples: Iterable[Sample], sides: Mapping[str, str], side: str, seed: int) -> Order:
    """Order one side's images of every cell as all sets draw them, so that test sets share images."""
    order: Order = {}
    for sample in sorted(samples, key=lambda sample: _sort_key(seed, "order", sample.sha256)):
        cell = order.setdefault(_cell_of(sample), [])
        if sides[sample.path] == side:
            cell.append(sample.path)
    return order


def _count_rounds(order: Order, dominant: Mapping[str, str], ratio: Ratio) -> dict[str, Rounds]:
    """Return how often a:b can be drawn in every class before a context runs out."""
    rounds: dict[str, Rounds] = {}
    for (class_name, context), paths in sorted(order.items()):
        needed = ratio.dominant if context == dominant[class_name] else ratio.minor
        limit = Rounds(len(paths) // needed, context, len(paths), needed)
        rounds[class_name] = min(rounds.get(class_name, limit), limit)
    return rounds


def _describe_shortage(rounds: Mapping[str, Rounds]) -> str:
    """Say which classes do not suffice for one round, in words; empty if all do."""
    return "; ".join(
        f"class {name!r} has {limit.available} image(s) in context {limit.context!r} where {limit.needed} are needed"
        for name, limit in rounds.items()
        if limit.number == 0
    )


def _draw_rounds(order: Order, dominant: Mapping[str, str], ratio: Ratio, rounds: Mapping[str, Rounds]) -> set[str]:
    drawn: set[str] = set()
    for (class_name, context), paths in order.items():
        per_round = ratio.dominant if context == dominant[class_name] else ratio.minor
        drawn.update(paths[: rounds[class_name].number * per_round])
    return drawn


def _draw_training(
    order: Order, dominant: Mapping[str, str], ratio: Ratio, validation_fraction: float
) -> dict[str, set[str]]:
    """Draw whole rounds for training and whole rounds for validation: both have the proportions of the training set."""
    rounds = _count_rounds(order, dominant, ratio)
    if short := _describe_shortage(rounds):
        raise ValueError(
            f"there are too few images for a training set at {ratio}: {short} on the training side, which gets "
            f"{TRAIN_FRACTION:.0%} of them. Add images, remove the context, or choose another ratio or seed."
        )
    kept = {
        name: limit._replace(number=limit.number - _validation_rounds(limit.number, validation_fraction))
        for name, limit in rounds.items()
    }
    train = _draw_rounds(order, dominant, ratio, kept)
    return {"train": train, "validation": _draw_rounds(order, dominant, ratio, rounds) - train}


def _validation_rounds(rounds: int, fraction: float) -> int:
    return min(max(int(rounds * fraction + 0.5), 1), rounds - 1) if fraction else 0


def _cell_of(sample: Sample) -> Cell:
    return sample.class_name, sample.context


def _sort_key(seed: int, *parts: str) -> str:
    """Return a hash to sort by, which shuffles: it depends on the seed and the item, not on its position."""
    return hashlib.sha256("\0".join([str(seed), *parts]).encode()).hexdigest()
