"""The proportional-bias protocol of NICO: every context everywhere, but in proportions that change
at test time.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pfdl.data.manifest import NO_CONTEXT
from pfdl.data.sources import Sample

TRAIN_FRACTION = 0.6
"""Share of every class and context that goes to the training side."""

TEST_RATIOS = ("1:5", "1:3", "1:1", "2:1", "3:1", "4:1", "5:1")
"""The test sets of the paper's table."""

Order = dict[str, dict[str, list[str]]]
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
        raise ValueError(
            f"the ratio is {text!r}; give dominant:minor as two whole numbers from 1, such as 5:1."
        )
    return int(dominant), int(minor)


def split_by_proportion(
    samples: Sequence[Sample], ratio: str, *, seed: int, validation_fraction: float
) -> tuple[dict[str, set[str]], dict[str, str], list[str]]:
    """Split images in contexts, each picture once, by the protocol of NICO: see
    :func:`pfdl.data.make_split`.

    Returns:
        The paths of every set, the dominant context of every class, and notes.

    Raises:
        ValueError: If the images do not suffice for training.
    """
    sides = divide(samples, seed, TRAIN_FRACTION, "side")
    shuffled = sorted(samples, key=lambda sample: _sort_key(seed, "order", sample.sha256))
    trained, tested = (_by_context(shuffled, side) for side in sides)
    dominant = {
        name: min(contexts, key=lambda context: _sort_key(seed, "dominant", name, context))
        for name, contexts in trained.items()
    }
    chosen = _draw_rounds(trained, dominant, ratio, validation_fraction)
    if chosen.short:
        raise ValueError(
            f"there are too few images for a training set at {ratio}: {chosen.short} on the"
            f" training side, which gets {TRAIN_FRACTION:.0%} of them. Add images, remove the"
            " context, or choose another ratio or seed."
        )
    sets = {"train": chosen.drawn, "validation": chosen.held_out, "test": sides[1]}
    notes = []
    used = len(chosen.drawn) + len(chosen.held_out)
    if used < len(sides[0]):
        notes.append(
            f"{used} of the {len(sides[0])} images on the training side are used, to reach {ratio};"
            " the ratio 'natural' uses all of them."
        )
    if validation_fraction:
        validated = {sample.class_name for sample in samples if sample.path in chosen.held_out}
        notes += _note_not_validated(sorted(dominant.keys() - validated))
    for test_ratio in TEST_RATIOS:
        tests = _draw_rounds(tested, dominant, test_ratio)
        if tests.short:
            notes.append(f"There is no test set at {test_ratio}: {tests.short} on the test side.")
        else:
            sets[f"test-{test_ratio}"] = tests.drawn
    return sets, dominant, notes


def _note_not_validated(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    return [
        f"The validation set has no images of {', '.join(map(repr, names))}: one round is all they"
        " suffice for, and it is trained on."
    ]


def divide(
    samples: Sequence[Sample], seed: int, fraction: float, purpose: str
) -> tuple[set[str], set[str]]:
    """Return the paths of a fraction of every class and context, of which one image stays whole,
    and the others.

    Whole groups go, the largest first, to the part that lacks the larger share of its quota.
    Another purpose is another draw.
    """
    cells = Counter(map(_cell_of, samples))
    units: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        unit = ("group", sample.group) if sample.group else ("image", sample.sha256)
        units[unit].append(sample)
    quota = {cell: _quota(count, fraction) for cell, count in cells.items()}
    first = _Part(quota)
    second = _Part({cell: count - quota[cell] for cell, count in cells.items()})
    shuffled = sorted(units, key=lambda unit: _sort_key(seed, purpose, *unit))
    shuffled.sort(key=lambda unit: len(units[unit]), reverse=True)
    for unit in shuffled:
        whole = units[unit]
        taker = first if first.lacks(whole) >= second.lacks(whole) else second
        taker.take(whole)
    return first.paths, second.paths


class _Part:
    """One side of a division, and how far it is from its quota in each class and context."""

    def __init__(self, quota: Mapping[tuple[str, str], int]) -> None:
        self.paths: set[str] = set()
        self._quota = quota
        self._missing = dict(quota)

    def lacks(self, samples: Sequence[Sample]) -> float:
        """Return how large a share of its quotas the part lacks, summed over the samples."""
        lacking = 0.0
        for cell in map(_cell_of, samples):
            lacking += self._missing[cell] / max(1, self._quota[cell])
        return lacking

    def take(self, samples: Sequence[Sample]) -> None:
        """Add samples."""
        for sample in samples:
            self.paths.add(sample.path)
            self._missing[_cell_of(sample)] -= 1


def _quota(count: int, fraction: float) -> int:
    """Return a share, rounded, but something for both parts wherever there are two of them."""
    if count == 1:
        return 1
    share = int(fraction * count + 0.5)
    return min(max(share, 1), count - 1)


def _by_context(samples: Sequence[Sample], side: set[str]) -> Order:
    """Return the paths that are on a side; a class and context that has none there has an empty
    list.
    """
    names = sorted({sample.class_name for sample in samples})
    order: Order = {name: {} for name in names}
    for sample in samples:
        paths = order[sample.class_name].setdefault(sample.context, [])
        if sample.path in side:
            paths.append(sample.path)
    return order


class _Rounds(NamedTuple):
    """What all classes give in whole rounds.

    Attributes:
        drawn: The paths.
        held_out: Those of further rounds, which are held out.
        short: Which classes are too small for one round, in words; empty if none is.
    """

    drawn: set[str]
    held_out: set[str]
    short: str


def _draw_rounds(
    order: Order, dominant: Mapping[str, str], ratio: str, held_out: float = 0.0
) -> _Rounds:
    """Let every class give its share, round by round, until a context runs out."""
    of_dominant, of_minor = parse_ratio(ratio)
    drawn: set[str] = set()
    out: set[str] = set()
    short = []
    for name, contexts in order.items():
        needed = dict.fromkeys(contexts, of_minor) | {dominant[name]: of_dominant}
        rounds = min(len(paths) // needed[context] for context, paths in contexts.items())
        if not rounds:
            short.append(f"class {name!r} has {_describe_shortage(contexts, needed)}")
        kept = rounds
        if held_out and rounds > 1:
            kept -= _quota(rounds, held_out)
        for context, paths in contexts.items():
            of_kept = kept * needed[context]
            of_all = rounds * needed[context]
            drawn.update(paths[:of_kept])
            out.update(paths[of_kept:of_all])
    return _Rounds(drawn, out, "; ".join(short))


def _describe_shortage(contexts: Mapping[str, Sequence[str]], needed: Mapping[str, int]) -> str:
    """Say how few images there are in the first context, by name, that lacks some for a round."""
    context = min(name for name, paths in contexts.items() if len(paths) < needed[name])
    count = len(contexts[context])
    where = context or NO_CONTEXT
    return f"{count} image(s) in context {where!r} where {needed[context]} are needed"


def _cell_of(sample: Sample) -> tuple[str, str]:
    return sample.class_name, sample.context


def _sort_key(seed: int, *parts: str) -> str:
    """Return a hash to sort by, which shuffles: it depends on the seed and the item, not on its
    position.
    """
    return hashlib.sha256("\0".join([str(seed), *parts]).encode()).hexdigest()
