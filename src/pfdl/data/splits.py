"""Which images to train on and which to test on: the data's own sets, a plain split, or NICO's protocol."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pfdl._internal.validation import check_count
from pfdl.data.manifest import Manifest, ManifestRow
from pfdl.data.proportions import TRAIN_FRACTION, Ratio, assign_parts, split_by_proportion
from pfdl.data.sources import ContextSource, Sample

NATURAL = "natural"
"""The ratio that leaves the contexts in the proportions that they have."""

_MOST_NAMED = 3
"""So many files, or pictures that occur twice, are named; of more, the first ones and their number."""


def make_split(
    source: ContextSource,
    *,
    ratio: str = NATURAL,
    seed: int = 0,
    validation_fraction: float = 0.1,
    groups: Mapping[str, str] | None = None,
) -> Manifest:
    """Split images into training, validation and test sets.

    How depends on the data:

    - *Data with sets of its own* (folders train and test, or a column that says so) keeps them. Where it has no
      validation set, a share of the training set is held out; where it has a validation set and no test set, that is
      the test set.
    - *Other data* is split 60:40 inside every class and context, and every image is used.
    - *Data with contexts, where a ratio is asked for*, is split by the proportional-bias protocol of NICO. Inside every
      class and context 60 % go to the training side and 40 % to the test side. In every class one context is drawn as
      the dominant one, for training and for testing. A set of ratio a:b has, in every class, a images of the dominant
      context for every b images of each minor one, until one of them runs out; the other images are left out. The
      training set has the given ratio, and the validation set, taken out of it, has it too; the test sets have the
      ``TEST_RATIOS``, and the set ``test`` is the whole test side.

    All chance comes from hashes of the seed with contents and names: the same images give the same split on every
    machine, whatever their file names, and a further class leaves the split of the others as it is.

    A picture that occurs twice is used once, so that no content can be on both sides; a picture that occurs under two
    classes is not used. In sets of the data's own, only a picture of the test set that is trained on is left out, of
    training. All this is told in ``parameters["notes"]``, as are images that a ratio leaves out, a test set for which
    the images do not suffice, and names that differ in nothing but case.

    Args:
        source: The images.
        ratio: Proportion of the training set, as ``"dominant:minor"``; ``"natural"`` leaves it as it is.
        seed: Another seed is another draw of sides and dominant contexts.
        validation_fraction: Share of the training set that is held out, below 1.
        groups: For some or all paths, the name of a group that must not be on both sides, such as images with the same
            background; by default as the source says. The 60/40 proportion then holds as nearly as the groups allow.

    Returns:
        The manifest.

    Raises:
        ValueError: If the source refuses, an argument is out of range, or the images do not suffice for training.
    """
    wanted = None if ratio == NATURAL else Ratio.parse(ratio)
    check_count("seed", seed, 0)
    if not 0 <= validation_fraction < 1:
        raise ValueError(f"validation_fraction is {validation_fraction}; it must be at least 0 and below 1.")
    given = source.samples
    together = {sample.path: sample.group for sample in given if sample.group} if groups is None else groups
    used: str | None = None
    if _has_own_sets(given):
        protocol = "own"
        samples, sets, notes = _keep_own_sets(given)
        if not sets["validation"]:
            sets |= _hold_out(samples, sets["train"], seed, together, validation_fraction)
        sides = {path: "test" if name == "test" else "train" for name, paths in sets.items() for path in paths}
        dominant = _most_frequent(samples, sets["train"])
    else:
        samples, notes = _without_repetitions(given)
        if wanted is not None and any(sample.context for sample in samples):
            protocol, used = "proportional", str(wanted)
            sides, sets, dominant, more = split_by_proportion(
                samples, wanted, seed=seed, validation_fraction=validation_fraction, groups=together
            )
            notes += more
        else:
            protocol = "plain"
            sides = assign_parts(samples, seed, together, TRAIN_FRACTION)
            train = {path for path, side in sides.items() if side == "train"}
            sets = {"train": train, "validation": set(), "test": set(sides) - train}
            sets |= _hold_out(samples, train, seed, together, validation_fraction)
            dominant = _most_frequent(samples, sets["train"])
    description = dict(source.description)
    parameters: dict[str, Any] = {
        "seed": seed,
        "protocol": protocol,
        "ratio": used,
        "train_fraction": None if protocol == "own" else TRAIN_FRACTION,
        "validation_fraction": validation_fraction,
        "grouped": bool(together),
        "source": description,
        "dominant": dominant,
        "images": {name: len(paths) for name, paths in sets.items() if paths},
        "notes": [*description.get("notes", ()), *_describe_case(samples), *notes],
    }
    return Manifest(_make_rows(samples, sides, sets), parameters)


def make_test_set(source: ContextSource, trained_on: Manifest | None = None) -> Manifest:
    """Take images as a test set: the data's own test set where it has one, else all of them.

    Args:
        source: The images.
        trained_on: The split of the model that is to be tested. Pictures of its training side are left out.

    Returns:
        A manifest whose one set is ``test``.

    Raises:
        ValueError: If no image is left.
    """
    samples: Sequence[Sample] = source.samples
    notes: list[str] = []
    for own in ("test", "validation"):
        if any(sample.split == own for sample in samples):
            samples = [sample for sample in samples if sample.split == own]
            break
    seen = set() if trained_on is None else {row.sha256 for row in trained_on.rows if row.side == "train"}
    kept = [sample for sample in samples if sample.sha256 not in seen]
    if len(kept) < len(samples):
        notes.append(f"Left out: {len(samples) - len(kept)} of {len(samples)} images, which the model was trained on.")
    if not kept:
        raise ValueError("the model was trained on all of these images; give images that it has not seen.")
    names = sorted({sample.class_name for sample in kept})
    parameters: dict[str, Any] = {
        "protocol": "test",
        "source": dict(source.description),
        "dominant": dict.fromkeys(names, ""),
        "images": {"test": len(kept)},
        "notes": notes,
    }
    everything = {sample.path: "test" for sample in kept}
    return Manifest(_make_rows(sorted(kept), everything, {"test": set(everything)}), parameters)


def _has_own_sets(samples: Sequence[Sample]) -> bool:
    """Return whether the data says itself what to test on; ValueError if then there is nothing to train on."""
    splits = {sample.split for sample in samples}
    if splits <= {"", "train"}:
        return False
    if "train" not in splits:
        raise ValueError(
            f"the data has {' and '.join(sorted(splits - {''}))} images of its own but none to train on; "
            "put images into a set called train, or give the data to pfdl evaluate."
        )
    return True


def _most_frequent(samples: Sequence[Sample], train: set[str]) -> dict[str, str]:
    """Return the most frequent context of every class in training; of equals, the first by name."""
    contexts: dict[str, Counter[str]] = defaultdict(Counter)
    for sample in samples:
        if sample.path in train:
            contexts[sample.class_name][sample.context] += 1
    return {name: min(contexts[name], key=lambda c: (-contexts[name][c], c)) for name in sorted(contexts)}


def _keep_own_sets(samples: Sequence[Sample]) -> tuple[list[Sample], dict[str, set[str]], list[str]]:
    """Take the sets as they are, but train on no picture of the test set."""
    notes = []
    order = ["test", "validation", "train"]
    if not any(sample.split == "test" for sample in samples):
        notes.append("The data has no test set: its validation set is the test set, and another one is held out.")
        samples = [s._replace(split="test") if s.split == "validation" else s for s in samples]
    first: dict[str, str] = {}
    for sample in sorted(samples, key=lambda sample: order.index(sample.split or "train")):
        first.setdefault(sample.pixels, sample.split or "train")
    kept = [sample for sample in samples if first[sample.pixels] == (sample.split or "train")]
    if lost := [sample.path for sample in samples if first[sample.pixels] != (sample.split or "train")]:
        notes.append(
            f"Left out of training or validation: {_name_some(lost)}, as the same picture is held out or tested on."
        )
    sets = {name: {s.path for s in kept if (s.split or "train") == name} for name in ("train", "validation", "test")}
    return sorted(kept), sets, notes


def _hold_out(
    samples: Sequence[Sample], train: set[str], seed: int, groups: Mapping[str, str], fraction: float
) -> dict[str, set[str]]:
    """Take a share of every class and context out of the training set; a class and context of one image stays whole."""
    if not fraction:
        return {"train": train, "validation": set()}
    inside = [sample for sample in samples if sample.path in train]
    parts = assign_parts(inside, seed, groups, 1 - fraction, "validation")
    kept = {path for path, part in parts.items() if part == "train"}
    return {"train": kept, "validation": train - kept}


def _describe_case(samples: Sequence[Sample]) -> list[str]:
    """Name the classes and the contexts that a person could take for each other."""
    notes = []
    for what, names in (("classes", {s.class_name for s in samples}), ("contexts", {s.context for s in samples})):
        same: dict[str, list[str]] = defaultdict(list)
        for name in sorted(names):
            same[name.casefold()].append(name)
        for alike in same.values():
            if len(alike) > 1:
                notes.append(
                    f"The {what} {', '.join(map(repr, alike))} differ only by case; rename them if they are the same."
                )
    return notes


def _without_repetitions(samples: Sequence[Sample]) -> tuple[list[Sample], list[str]]:
    """Return every picture once; those with two labels not at all."""
    same: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        same[sample.pixels].append(sample)
    kept, conflicting, repeated = [], [], []
    for copies in same.values():
        if len({copy.class_name for copy in copies}) > 1:
            conflicting.append(copies)
            continue
        kept.append(copies[0])
        if len(copies) > 1:
            repeated.append(copies)
    notes = _describe_copies("Left out, because the same picture has different classes", conflicting)
    return sorted(kept), notes + _describe_copies("Used once, because the picture is the same", repeated)


def _describe_copies(what: str, pictures: Sequence[Sequence[Sample]]) -> list[str]:
    """Name the files of each picture; of many pictures, count them and name the files of the first."""
    named = [f"{what}: {_name_some([copy.path for copy in copies])}." for copies in pictures[:_MOST_NAMED]]
    if len(pictures) <= _MOST_NAMED:
        return named
    files = sum(map(len, pictures))
    return [f"{what}: {len(pictures)} pictures in {files} files, such as {_name_some([c.path for c in pictures[0]])}."]


def _make_rows(
    samples: Sequence[Sample], sides: Mapping[str, str], sets: Mapping[str, set[str]]
) -> tuple[ManifestRow, ...]:
    return tuple(
        ManifestRow(*sample[:4], sides[sample.path], tuple(name for name in sets if sample.path in sets[name]))
        for sample in samples
    )


def _name_some(paths: Sequence[str]) -> str:
    shown = ", ".join(map(repr, paths[:_MOST_NAMED]))
    return shown if len(paths) <= _MOST_NAMED else f"{len(paths)} images, such as {shown}"
