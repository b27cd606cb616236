"""The proportional-bias protocol of NICO: every context everywhere, but in proportions that change at test time."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from pfdl.data.manifest import SIDES
from pfdl.data.sources import Sample

TRAIN_FRACTION = 0.6
"""Share of every class and context that goes to the training side."""

TEST_RATIOS = ("1:5", "1:3", "1:1", "2:1", "3:1", "4:1", "5:1")
"""The test sets of the paper's table."""

Cell = tuple[str, str]
Order = dict[Cell, list[str]]
"""The paths of every class and context, in the order in which sets draw them."""


def parse_ratio(text: str) -> tuple[int, int]:
    """Read how many images of the dominant context there are to how many of *each* minor one.

    Raises:
        ValueError: Unless these are two whole numbers from 1.

    Example:
        >>> parse_ratio("5:1")
        (5, 1)
    """
    dominant, _, minor = text.partition(":")
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in (dominant, minor)):
        raise ValueError(f"the ratio is {text!r}; give dominant:minor as two whole numbers from 1, such as 5:1.")
    return int(dominant), int(minor)


def split_by_proportion(
    samples: Sequence[Sample], ratio: str, *, seed: int, validation_fraction: float
) -> tuple[dict[str, set[str]], dict[str, str], list[str]]:
    """Split images in contexts, each picture once, by the protocol of NICO: see :func:`pfdl.data.make_split`.

    Returns:
        The paths of every set, the dominant context of every class, and notes.

    Raises:
        ValueError: If the images do not suffice for training.
    """
    sides = assign_parts(samples, seed, TRAIN_FRACTION)
    dominant = _draw_dominant(samples, seed)
    order: dict[str, Order] = {side: {_cell_of(sample): [] for sample in samples} for side in SIDES}
    for sample in sorted(samples, key=lambda sample: _sort_key(seed, "order", sample.sha256)):
        order[sides[sample.path]][_cell_of(sample)].append(sample.path)
    rounds, short = _count_rounds(order["train"], dominant, ratio)
    if short:
        raise ValueError(
            f"there are too few images for a training set at {ratio}: {short} on the training side, which gets "
            f"{TRAIN_FRACTION:.0%} of them. Add images, remove the context, or choose another ratio or seed."
        )
    # Whole rounds are held out, too: both sets have the proportions of the training set.
    kept = {name: number - _validation_rounds(number, validation_fraction) for name, number in rounds.items()}
    used = _draw_rounds(order["train"], dominant, ratio, rounds)
    train = _draw_rounds(order["train"], dominant, ratio, kept)
    sets = {"train": train, "validation": used - train, "test": {path for path in sides if sides[path] == "test"}}
    notes = []
    if len(used) < len(samples) - len(sets["test"]):
        notes.append(
            f"{len(used)} of the {len(samples) - len(sets['test'])} images on the training side are used, to reach "
            f"{ratio}; the ratio 'natural' uses all of them."
        )
    lacking = [repr(name) for name in sorted(rounds) if kept[name] == rounds[name]]
    if lacking and validation_fraction:
        notes.append(
            f"The validation set has no images of {', '.join(lacking)}: one round is all they suffice for, and it is "
            "trained on."
        )
    for test_ratio in TEST_RATIOS:
        rounds, short = _count_rounds(order["test"], dominant, test_ratio)
        if short:
            notes.append(f"There is no test set at {test_ratio}: {short} on the test side.")
        else:
            sets[f"test-{test_ratio}"] = _draw_rounds(order["test"], dominant, test_ratio, rounds)
    return sets, dominant, notes


def assign_parts(samples: Sequence[Sample], seed: int, fraction: float, purpose: str = "side") -> dict[str, str]:
    """Divide the images of every class and context between ``"train"``, which gets a fraction, and ``"test"``.

    Whole groups go, the largest first, to the part that lacks the larger share of its quota. Another purpose is
    another draw.
    """
    cells: dict[Cell, int] = defaultdict(int)
    units: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        cells[_cell_of(sample)] += 1
        units[("group", sample.group) if sample.group else ("image", sample.sha256)].append(sample)
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


def _validation_rounds(rounds: int, fraction: float) -> int:
    """Return a share, rounded, but something for both sets wherever there are two rounds."""
    return min(max(int(rounds * fraction + 0.5), 1), rounds - 1) if fraction else 0


def _draw_dominant(samples: Iterable[Sample], seed: int) -> dict[str, str]:
    contexts: dict[str, set[str]] = defaultdict(set)
    for sample in samples:
        contexts[sample.class_name].add(sample.context)
    return {
        name: min(contexts[name], key=lambda context: _sort_key(seed, "dominant", name, context))
        for name in sorted(contexts)
    }


def _per_round(cell: Cell, dominant: Mapping[str, str], ratio: str) -> int:
    """Return how many images a class and context give to a set in every round."""
    class_name, context = cell
    return parse_ratio(ratio)[context != dominant[class_name]]


def _count_rounds(order: Order, dominant: Mapping[str, str], ratio: str) -> tuple[dict[str, int], str]:
    """Return how often every class can give its share before a context runs out, and where once is too much."""
    rounds: dict[str, int] = {}
    short: dict[str, str] = {}
    for cell, paths in sorted(order.items()):
        class_name, context = cell
        needed = _per_round(cell, dominant, ratio)
        rounds[class_name] = min(rounds.get(class_name, len(paths)), len(paths) // needed)
        if len(paths) < needed:
            found = f"{len(paths)} image(s) in context {context!r} where {needed} are needed"
            short.setdefault(class_name, f"class {class_name!r} has {found}")
    return rounds, "; ".join(short.values())


def _draw_rounds(order: Order, dominant: Mapping[str, str], ratio: str, rounds: Mapping[str, int]) -> set[str]:
    drawn: set[str] = set()
    for cell, paths in order.items():
        drawn.update(paths[: rounds[cell[0]] * _per_round(cell, dominant, ratio)])
    return drawn


def _cell_of(sample: Sample) -> Cell:
    return sample.class_name, sample.context


def _sort_key(seed: int, *parts: str) -> str:
    """Return a hash to sort by, which shuffles: it depends on the seed and the item, not on its position."""
    return hashlib.sha256("\0".join([str(seed), *parts]).encode()).hexdigest()
