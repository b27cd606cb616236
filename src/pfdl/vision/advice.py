"""What to try after a diagnosis, ranked by what it rests on."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pfdl._internal.settings import write_options
from pfdl.diagnosis.result import BALANCED, TRAINING_UNKNOWN
from pfdl.diagnosis.verdict import NO, YES
from pfdl.runs import MANIFEST
from pfdl.vision.config import TrainingConfig
from pfdl.vision.diagnosis import ANSWERS, KNOWN, NAMED, OTHER, ImageDiagnosis

Advice = tuple[str, str]
"""A sentence, and what to type."""


def advise(diagnosis: ImageDiagnosis, data: str, options: Sequence[str] = ()) -> list[Advice]:
    """Return what to try next, what is best supported first: a sentence, and what to type.

    Nothing is trained on contexts that are not confirmed.

    Args:
        diagnosis: The diagnosis.
        data: What the user called the data on the command line.
        options: Further words of the command line that say how to read the data.
    """
    run = shlex.quote(str(diagnosis.folder))
    if diagnosis.data_is == ANSWERS:
        again = f"pfdl diagnose --predictions {run} IMAGES"
        if diagnosis.answer == YES and diagnosis.found.explains_gap:
            return [
                (
                    "Draw every class in every context equally often in training; in pfdl:",
                    "pfdl train IMAGES --contexts inferred --sampler groups",
                )
            ]
        name = "Name the contexts of the images in a column 'context' of the table."
        name_training = (
            "Add the training images to the table, with their contexts and the split train; then it"
            " is known which contexts are usual."
        )
        return [_what_is_missing(diagnosis, (name, again), (name_training, again), again, again)]
    named = f"pfdl diagnose {run} TABLE.csv --columns context=NAME"
    which = "other" if diagnosis.contexts_are == KNOWN else "the"
    name = (
        f"Name {which} contexts of the test images and of those it was trained on, in a column of"
        " a table; then it can be measured whether they matter."
    )
    if diagnosis.answer == YES:
        about = _about_contexts(diagnosis, _images(diagnosis, [data, *options]))
        return [about] if diagnosis.found.explains_gap else [about, (name, named)]
    name_training = (
        "Name the contexts of the images it was trained on, too, in one table with these; then it"
        " is known which are usual."
    )
    return [
        _what_is_missing(
            diagnosis,
            (name, named),
            (name_training, named),
            f"pfdl evaluate {run} OTHER_DATA",
            f"pfdl diagnose {run} MORE_DATA",
        )
    ]


def _what_is_missing(
    diagnosis: ImageDiagnosis, name: Advice, name_training: Advice, other: str, more: str
) -> Advice:
    """Return what tells more of a model of which it is not shown that it relies on the context.

    Args:
        diagnosis: The diagnosis.
        name: How to name contexts.
        name_training: How to name those of the training images.
        other: What tests other data.
        more: What tests on more data.
    """
    why = diagnosis.found.unanswered
    if diagnosis.contexts_are == KNOWN and why.startswith(TRAINING_UNKNOWN):
        return name_training
    if diagnosis.contexts_are != KNOWN or not diagnosis.found.explains_gap:
        return name
    if diagnosis.answer == NO or why == BALANCED:
        return "No change is needed for these contexts. Test other data.", other
    return "Give more images that were not trained on, in all contexts.", more


def _images(diagnosis: ImageDiagnosis, words: list[str]) -> str:
    """Return what to type for the images of a training like that of the run."""
    if diagnosis.data_is == OTHER:
        words = ["TRAINING_DATA"]
    if diagnosis.network and "--features" not in words:
        words += ["--features", diagnosis.network]
    if diagnosis.data_is != NAMED:  # with its ratio and layout
        words += ["--set", f"manifest={diagnosis.folder / MANIFEST}"]
    return shlex.join(words)


def _about_contexts(diagnosis: ImageDiagnosis, images: str) -> Advice:
    """Name a training like that of the run but for what it does about contexts, and that was not
    tried already.
    """
    plain = replace(
        diagnosis.training,
        objective="erm",
        objective_settings={},
        sampler="shuffle",
        sampler_power=1.0,
        contexts="known" if diagnosis.contexts_are == KNOWN else "inferred",
        infer_by="auto",  # as they were found here
        confirm=True,
    )
    balanced = replace(plain, sampler="groups")
    worst = replace(plain, objective="groupdro")
    name = diagnosis.folder.name.removesuffix("-groupdro").removesuffix("-groups")
    if diagnosis.training == worst:
        command = _train(
            "MORE_DATA", diagnosis.training, diagnosis.folder.with_name(f"{name}-more")
        )
        return "Add training images of the affected classes in other contexts.", command
    then = ", then compare (pfdl diagnose … --compare)."
    if diagnosis.training == balanced:
        folder = diagnosis.folder.with_name(f"{name}-groupdro")
        what = "Train with an objective that looks at the worst group"
        return f"{what}{then}", _train(images, worst, folder)
    instead = ""
    if diagnosis.training.objective != "erm":
        instead = f", with plain erm instead of {diagnosis.training.objective}"
    what = f"Draw every class in every context equally often{instead}"
    return f"{what}{then}", _train(images, balanced, diagnosis.folder.with_name(f"{name}-groups"))


def _train(images: str, config: TrainingConfig, folder: Path) -> str:
    return f"pfdl train {images} {shlex.join([*write_options(config), '-o', str(folder)])}"
