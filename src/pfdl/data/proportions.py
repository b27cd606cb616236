"""The proportional-bias protocol of NICO: every context everywhere, but in proportions that change at test time."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pfdl._internal.validation import check_count
from pfdl.data.manifest import SIDES, Manifest, ManifestRow
from pfdl.data.sources import ContextSource, Sample

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


def make_split(
    source: ContextSource,
    *,
    ratio: str = "5:1",
    seed: int = 0,
    validation_fraction: float = 0.1,
    groups: Mapping[str, str] | None = None,
) -> Manifest:
    """Split images by the proportional-bias protocol.

    Inside every class and context 60 % go to the training side and 40 % to the test side. In every class one context
    is drawn as the dominant one, for training and testing alike. A set of ratio a:b has, in every class, a images of
    the dominant context for every b images of each minor one, until one of them runs out. The training set has the
    given ratio, and the validation set, taken out of it, has it too; the test sets have the ``TEST_RATIOS``, and the
    set ``test`` is the whole test side. Without contexts there are only ``train``, ``validation`` and ``test``.

    All chance comes from hashes of the seed with contents and names: the same images give the same split on every
    machine, whatever their file names, and a further class leaves the split of the others as it is.

    A picture that occurs twice is used once, so that no content can be on both sides; a picture that occurs under two
    classes is not used. Both are told in ``parameters["notes"]``, as is a test set for which the images do not suffice.

    Args:
        source: The images.
        ratio: Proportion of the training set, as ``"dominant:minor"``.
        seed: Another seed is another draw of sides and dominant contexts.
        validation_fraction: Share of the training set that is held out, below 1.
        groups: For some or all paths, the name of a group that must not be on both sides, such as images with the same
            background. The 60/40 proportion then holds as nearly as the groups allow.

    Returns:
        The manifest.

    Raises:
        ValueError: If the source refuses, an argument is out of range, or the images do not suffice for training.
    """
    wanted = Ratio.parse(ratio)
    check_count("seed", seed, 0)
    if not 0 <= validation_fraction < 1:
        raise ValueError(f"validation_fraction is {validation_fraction}; it must be at least 0 and below 1.")
    samples, notes = _without_repetitions(source.samples)
    has_contexts = any(sample.context for sample in samples)
    sides = _assign_sides(samples, seed, groups or {})
    dominant = _draw_dominant(samples, seed)
    order = {side: _shuffle(samples, sides, side, seed) for side in SIDES}
    sets = _draw_training(order["train"], dominant, wanted if has_contexts else Ratio(1, 1), validation_fraction)
    lacking = set(dominant) - {sample.class_name for sample in samples if sample.path in sets["validation"]}
    if lacking and validation_fraction:
        names = ", ".join(map(repr, sorted(lacking)))
        notes.append(
            f"The validation set has no images of {names}: one round is all they suffice for, and it is trained on."
        )
    sets["test"] = {path for path, side in sides.items() if side == "test"}
    for test_ratio in TEST_RATIOS if has_contexts else ():
        rounds = _count_rounds(order["test"], dominant, test_ratio)
        if short := _describe_shortage(rounds):
            notes.append(f"There is no test set at {test_ratio}: {short} on the test side.")
        else:
            sets[f"test-{test_ratio}"] = _draw(order["test"], dominant, test_ratio, rounds)
    rows = tuple(
        ManifestRow(*sample[:4], sides[sample.path], tuple(name for name in sets if sample.path in sets[name]))
        for sample in samples
    )
    parameters: dict[str, Any] = {
        "seed": seed,
        "ratio": str(wanted) if has_contexts else None,
        "train_fraction": TRAIN_FRACTION,
        "validation_fraction": validation_fraction,
        "grouped": groups is not None,
        "source": dict(source.description),
        "dominant": dominant,
        "images": {name: len(paths) for name, paths in sets.items() if paths},
        "notes": notes,
    }
    return Manifest(rows, parameters)


def _without_repetitions(samples: Sequence[Sample]) -> tuple[list[Sample], list[str]]:
    """Every picture once; those with two labels not at all."""
    same: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        same[sample.pixels].append(sample)
    kept, notes = [], []
    for copies in same.values():
        names = ", ".join(repr(copy.path) for copy in copies)
        if len({copy.class_name for copy in copies}) > 1:
            notes.append(f"Left out, because the same picture has different classes: {names}.")
            continue
        kept.append(copies[0])
        if len(copies) > 1:
            notes.append(f"Used once, because the picture is the same: {names}.")
    return sorted(kept), notes


def _assign_sides(samples: Sequence[Sample], seed: int, groups: Mapping[str, str]) -> dict[str, str]:
    """Send whole groups, the largest first, to the side that lacks the larger share of its quota in their cells."""
    cells: dict[Cell, int] = defaultdict(int)
    units: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        cells[_cell(sample)] += 1
        unit = ("group", groups[sample.path]) if sample.path in groups else ("image", sample.sha256)
        units[unit].append(sample)
    quotas = {"train": {cell: _train_quota(count) for cell, count in cells.items()}}
    quotas["test"] = {cell: count - quotas["train"][cell] for cell, count in cells.items()}
    missing = {side: dict(quota) for side, quota in quotas.items()}
    sides = {}
    for unit in sorted(units, key=lambda unit: (-len(units[unit]), _chance(seed, "side", *unit))):
        side = max(
            SIDES, key=lambda side: sum(missing[side][_cell(s)] / max(1, quotas[side][_cell(s)]) for s in units[unit])
        )
        for sample in units[unit]:
            sides[sample.path] = side
            missing[side][_cell(sample)] -= 1
    return sides


def _train_quota(count: int) -> int:
    """60 %, rounded, but something on both sides wherever there are two images."""
    return 1 if count == 1 else min(max(int(TRAIN_FRACTION * count + 0.5), 1), count - 1)


def _draw_dominant(samples: Iterable[Sample], seed: int) -> dict[str, str]:
    contexts: dict[str, set[str]] = defaultdict(set)
    for sample in samples:
        contexts[sample.class_name].add(sample.context)
    return {
        name: min(contexts[name], key=lambda context: _chance(seed, "dominant", name, context))
        for name in sorted(contexts)
    }


def _shuffle(samples: Iterable[Sample], sides: Mapping[str, str], side: str, seed: int) -> Order:
    """One side's images of every cell in the order in which all sets draw them, so that test sets share images."""
    order: Order = {}
    for sample in sorted(samples, key=lambda sample: _chance(seed, "order", sample.sha256)):
        cell = order.setdefault(_cell(sample), [])
        if sides[sample.path] == side:
            cell.append(sample.path)
    return order


def _count_rounds(order: Order, dominant: Mapping[str, str], ratio: Ratio) -> dict[str, Rounds]:
    """How often a:b can be drawn in every class before a context runs out."""
    rounds: dict[str, Rounds] = {}
    for (class_name, context), paths in sorted(order.items()):
        needed = ratio.dominant if context == dominant[class_name] else ratio.minor
        limit = Rounds(len(paths) // needed, context, len(paths), needed)
        rounds[class_name] = min(rounds.get(class_name, limit), limit)
    return rounds


def _describe_shortage(rounds: Mapping[str, Rounds]) -> str:
    """Which classes do not suffice for one round, in words; empty if all do."""
    return "; ".join(
        f"class {name!r} has {limit.available} image(s) in context {limit.context!r} where {limit.needed} are needed"
        for name, limit in rounds.items()
        if limit.number == 0
    )


def _draw(order: Order, dominant: Mapping[str, str], ratio: Ratio, rounds: Mapping[str, Rounds]) -> set[str]:
    drawn: set[str] = set()
    for (class_name, context), paths in order.items():
        per_round = ratio.dominant if context == dominant[class_name] else ratio.minor
        drawn.update(paths[: rounds[class_name].number * per_round])
    return drawn


def _draw_training(
    order: Order, dominant: Mapping[str, str], ratio: Ratio, validation_fraction: float
) -> dict[str, set[str]]:
    """Whole rounds for training and whole rounds for validation: both have the proportions of the training set."""
    rounds = _count_rounds(order, dominant, ratio)
    if short := _describe_shortage(rounds):
        raise ValueError(
            f"the images do not suffice for a training set at {ratio}: {short} on the training side, which gets "
            f"{TRAIN_FRACTION:.0%} of them. Add images, remove the context, or choose another ratio or seed."
        )
    kept = {
        name: limit._replace(number=limit.number - _validation_rounds(limit.number, validation_fraction))
        for name, limit in rounds.items()
    }
    train = _draw(order, dominant, ratio, kept)
    return {"train": train, "validation": _draw(order, dominant, ratio, rounds) - train}


def _validation_rounds(rounds: int, fraction: float) -> int:
    return min(max(int(rounds * fraction + 0.5), 1), rounds - 1) if fraction else 0


def _cell(sample: Sample) -> Cell:
    return sample.class_name, sample.context


def _chance(seed: int, *parts: str) -> str:
    """What a sort by it shuffles: a hash that depends on the seed and on what is shuffled, not on its position."""
    return hashlib.sha256("\0".join([str(seed), *parts]).encode()).hexdigest()
