"""Which images to train on and which to test on: the data's own sets, a plain split, or NICO's
protocol.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pfdl._internal.validation import check_count
from pfdl.data.manifest import Manifest, ManifestRow
from pfdl.data.proportions import TRAIN_FRACTION, divide, parse_ratio, split_by_proportion
from pfdl.data.sources import ContextSource, Sample

NATURAL = "natural"
"""The ratio that leaves the contexts in the proportions that they have."""

_KEPT_FIRST = ("test", "validation", "train")
"""In which of the data's own sets a picture stays that is in several of them."""

_MOST_NAMED = 3
"""So many files, or pictures that occur twice, are named; of more, the first ones and their number.
"""


def make_split(
    source: ContextSource, *, ratio: str = NATURAL, seed: int = 0, validation_fraction: float = 0.1
) -> Manifest:
    """Split images into training, validation and test sets.

    How depends on the data:

    - *Data with sets of its own* (folders train and test, or a column that says so) keeps them.
      Where it has no validation set, a share of the training set is held out; where it has a
      validation set and no test set, that is the test set.
    - *Other data* is split 60:40 inside every class and context, and every image is used.
    - *Data with contexts, where a ratio is asked for*, is split by the proportional-bias protocol
      of NICO. Inside every class and context 60 % go to the training side and 40 % to the test
      side. In every class one context is drawn as the dominant one, for training and for testing. A
      set of ratio a:b has, in every class, a images of the dominant context for every b images of
      each minor one, until one of them runs out; the other images are left out. The training set
      has the given ratio, and the validation set, taken out of it, has it too; the test sets have
      the ``TEST_RATIOS``, and the set ``test`` is the whole test side.

    Images of one group, such as those of one patient, are never on both sides; the 60:40 proportion
    then holds as nearly as the groups allow. All chance comes from hashes of the seed with contents
    and names: the same images give the same split on every machine, whatever their file names, and
    a further class leaves the split of the others as it is.

    A picture that occurs twice is used once, so that no content can be on both sides; a picture
    that occurs under two classes is not used. In sets of the data's own, only a picture of the test
    set that is trained on is left out, of training. All this is told in ``parameters["notes"]``, as
    are images that a ratio leaves out, test sets for which the images do not suffice, a ratio that
    is not used, and images without a context where others have one.

    Args:
        source: The images.
        ratio: Proportion of the training set, as ``"dominant:minor"``; ``"natural"`` leaves it as
            it is.
        seed: Another seed is another draw of sides and dominant contexts.
        validation_fraction: Share of the training set that is held out, below 1.

    Returns:
        The manifest.

    Raises:
        ValueError: If the source refuses, an argument is out of range, or the images do not suffice
            for training.
    """
    if ratio != NATURAL:
        parse_ratio(ratio)
    check_count("seed", seed, 0)
    if not 0 <= validation_fraction < 1:
        raise ValueError(
            f"validation_fraction is {validation_fraction}; it must be at least 0 and below 1."
        )
    divided = _divide(source.samples, ratio, seed, validation_fraction)
    is_proportional = divided.protocol == "proportional"
    description = dict(source.description)
    parameters: dict[str, Any] = {
        "seed": seed,
        "protocol": divided.protocol,
        "ratio": ratio if is_proportional else None,
        "train_fraction": None if divided.protocol == "own" else TRAIN_FRACTION,
        "validation_fraction": validation_fraction,
        "grouped": any(sample.group for sample in divided.samples),
        "source": description,
        "dominant": divided.dominant,
        "images": {name: len(paths) for name, paths in divided.sets.items() if paths},
        "notes": [*description.get("notes", ()), *divided.notes, *_note_unknown(divided)],
    }
    return Manifest(_make_rows(divided.samples, divided.sets), parameters)


class _Divided(NamedTuple):
    """What a protocol makes of the images.

    Attributes:
        protocol: ``"own"``, ``"proportional"`` or ``"plain"``.
        samples: The images that are used.
        sets: The paths of each set.
        dominant: The context of each class that is dominant, or most frequent in training.
        notes: What a reader of the manifest should know.
    """

    protocol: str
    samples: Sequence[Sample]
    sets: dict[str, set[str]]
    dominant: dict[str, str]
    notes: list[str]


def _divide(
    samples: Sequence[Sample], ratio: str, seed: int, validation_fraction: float
) -> _Divided:
    """Divide images by the protocol that suits them."""
    if _has_own_sets(samples):
        kept, sets, notes = _keep_own_sets(samples)
        if ratio != NATURAL:
            notes.append(f"The ratio {ratio} was not used: the data has sets of its own.")
        return _with_validation("own", kept, sets, notes, seed, validation_fraction)
    kept, notes = _without_repetitions(samples)
    if ratio != NATURAL and any(sample.context for sample in kept):
        sets, dominant, more = split_by_proportion(
            kept, ratio, seed=seed, validation_fraction=validation_fraction
        )
        return _Divided("proportional", kept, sets, dominant, notes + more)
    train, test = divide(kept, seed, TRAIN_FRACTION, "side")
    sets = {"train": train, "validation": set(), "test": test}
    if ratio != NATURAL:
        notes.append(f"The ratio {ratio} was not used: the data has no contexts.")
    return _with_validation("plain", kept, sets, notes, seed, validation_fraction)


def _with_validation(
    protocol: str,
    samples: Sequence[Sample],
    sets: dict[str, set[str]],
    notes: list[str],
    seed: int,
    fraction: float,
) -> _Divided:
    """Hold a fraction of the training set out, where there is no validation set."""
    if not sets["validation"] and fraction:
        inside = [sample for sample in samples if sample.path in sets["train"]]
        train, validation = divide(inside, seed, 1 - fraction, "validation")
        sets = {**sets, "train": train, "validation": validation}
    return _Divided(protocol, samples, sets, _most_frequent(samples, sets["train"]), notes)


def _note_unknown(divided: _Divided) -> list[str]:
    """Return a note where images have no context and others, which are trained on, have one."""
    lacking = sum(not sample.context for sample in divided.samples)
    trained = [sample for sample in divided.samples if sample.path in divided.sets["train"]]
    if not lacking or not any(sample.context for sample in trained):
        return []
    return [
        f"{lacking} of {len(divided.samples)} images have no context; they count as a context of"
        " their own."
    ]


def make_test_set(source: ContextSource, trained_on: Manifest | None = None) -> Manifest:
    """Take images as a test set: the data's own test set where it has one, else all of them.

    Args:
        source: The images.
        trained_on: The split of the model that is to be tested. Pictures of its training side are
            left out.

    Returns:
        A manifest whose one set is ``test``.

    Raises:
        ValueError: If no image is left.
    """
    samples = _own_test_set(source.samples) or source.samples
    seen = set()
    if trained_on is not None:
        seen = {row.sha256 for row in trained_on.rows if row.side == "train"}
    kept = [sample for sample in samples if sample.sha256 not in seen]
    if not kept:
        raise ValueError(
            "the model was trained on all of these images; give images that it has not seen."
        )
    notes = []
    if len(kept) < len(samples):
        notes.append(
            f"Left out: {len(samples) - len(kept)} of {len(samples)} images, which the model was"
            " trained on."
        )
    names = sorted({sample.class_name for sample in kept})
    parameters: dict[str, Any] = {
        "protocol": "test",
        "source": dict(source.description),
        "dominant": dict.fromkeys(names, ""),
        "images": {"test": len(kept)},
        "notes": notes,
    }
    paths = {sample.path for sample in kept}
    return Manifest(_make_rows(sorted(kept), {"test": paths}), parameters)


def _own_test_set(samples: Sequence[Sample]) -> list[Sample]:
    """Return the test set of the data, or else its validation set; neither may have images."""
    tested = [sample for sample in samples if sample.split == "test"]
    return tested or [sample for sample in samples if sample.split == "validation"]


def name_contexts(manifest: Manifest, source: ContextSource) -> tuple[Manifest, str]:
    """Give the images of a split the contexts that some data names for them.

    Images are the same if their files are. Contexts that the split has itself are kept.

    Args:
        manifest: The split, for instance that of a finished training.
        source: The data, which may have come later and know more.

    Returns:
        The split; and a sentence that says what was taken or ignored, empty if there was nothing.
    """
    named = {sample.sha256: sample.context for sample in source.samples if sample.context}
    told = [row for row in manifest.rows if named.get(row.sha256, row.context) != row.context]
    if not told:
        return manifest, ""
    if any(row.context for row in manifest.rows):
        sentence = (
            f"The split has contexts of its own, which are kept: those that the data names for"
            f" {len(told)} of its images are ignored. With a split of its own the data would have"
            " them."
        )
        return manifest, sentence
    rows = tuple(row._replace(context=named.get(row.sha256, row.context)) for row in manifest.rows)
    trained = sum("train" in row.sets for row in told)
    sentence = (
        f"The split has no contexts; the data names those of {len(told)} of its images, {trained}"
        " of which were trained on."
    )
    return replace(manifest, rows=rows), sentence


def _has_own_sets(samples: Sequence[Sample]) -> bool:
    """Return whether the data says itself what to test on; ValueError if then a class has no images
    to train on.
    """
    splits = {sample.split for sample in samples}
    if splits <= {"", "train"}:
        return False
    if "train" not in splits:
        raise ValueError(
            f"the data has {' and '.join(sorted(splits - {''}))} images of its own but none to"
            " train on; put images into a set called train, or give the data to pfdl evaluate."
        )
    trained = {sample.class_name for sample in samples if sample.split in ("", "train")}
    if unknown := sorted({sample.class_name for sample in samples} - trained):
        raise ValueError(
            f"the data tests on images of {_name_some(unknown, 'classes')}, which its training set"
            " does not have; both must have the same classes."
        )
    return True


def _most_frequent(samples: Sequence[Sample], train: set[str]) -> dict[str, str]:
    """Return the most frequent context of every class in training; of equals, the first by name."""
    contexts: dict[str, Counter[str]] = defaultdict(Counter)
    for sample in samples:
        if sample.path in train:
            contexts[sample.class_name][sample.context] += 1
    return {
        name: min(contexts[name], key=lambda c: (-contexts[name][c], c))
        for name in sorted(contexts)
    }


def _keep_own_sets(
    samples: Sequence[Sample],
) -> tuple[list[Sample], dict[str, set[str]], list[str]]:
    """Take the sets as they are, but train on no picture of the test set."""
    notes = []
    names = {"": "train"}
    if not any(sample.split == "test" for sample in samples):
        notes.append(
            "The data has no test set: its validation set is the test set, and another one is held"
            " out."
        )
        names["validation"] = "test"
    samples = [sample._replace(split=names.get(sample.split, sample.split)) for sample in samples]
    home = _homes(samples)
    sets: dict[str, set[str]] = {"train": set(), "validation": set(), "test": set()}
    kept = []
    lost = []
    for sample in samples:
        if home[sample.pixels] == sample.split:
            kept.append(sample)
            sets[sample.split].add(sample.path)
        else:
            lost.append(sample.path)
    if lost:
        notes.append(
            f"Left out of training or validation: {_name_some(lost)}, as the same picture is held"
            " out or tested on."
        )
    return sorted(kept), sets, notes


def _homes(samples: Sequence[Sample]) -> dict[str, str]:
    """Return for each picture the set in which it stays."""
    homes: dict[str, str] = {}
    for name in _KEPT_FIRST:
        for sample in samples:
            if sample.split == name:
                homes.setdefault(sample.pixels, name)
    return homes


def _without_repetitions(samples: Sequence[Sample]) -> tuple[list[Sample], list[str]]:
    """Return every picture once; those with two labels not at all."""
    first: dict[str, Sample] = {}
    conflicting: set[str] = set()
    for sample in samples:
        if first.setdefault(sample.pixels, sample).class_name != sample.class_name:
            conflicting.add(sample.pixels)
    notes = []
    if lost := [sample.path for sample in samples if sample.pixels in conflicting]:
        notes.append(
            f"Left out, because the same picture has different classes: {_name_some(lost)}."
        )
    kept = sorted(sample for sample in first.values() if sample.pixels not in conflicting)
    copies = {sample.path for sample in samples} - {sample.path for sample in kept} - set(lost)
    if copies:
        notes.append(
            f"Left out, because the same picture is in another file: {_name_some(sorted(copies))}."
        )
    return kept, notes


def _make_rows(samples: Sequence[Sample], sets: Mapping[str, set[str]]) -> tuple[ManifestRow, ...]:
    def make_row(sample: Sample) -> ManifestRow:
        side = "test" if sample.path in sets["test"] else "train"
        names = tuple(name for name in sets if sample.path in sets[name])
        return ManifestRow(*sample[:4], side, names)

    return tuple(map(make_row, samples))


def _name_some(names: Sequence[str], what: str = "images") -> str:
    shown = ", ".join(map(repr, names[:_MOST_NAMED]))
    if len(names) <= _MOST_NAMED:
        return shown
    return f"{len(names)} {what}, such as {shown}"
