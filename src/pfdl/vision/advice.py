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


def advise(one: ImageDiagnosis, data: str, options: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return what to try next, what is best supported first: a sentence, and what to type.

    Nothing is trained on contexts that are not confirmed.

    Args:
        one: The diagnosis.
        data: What the user called the data on the command line.
        options: Further words of the command line that say how to read the data.
    """
    if one.data_is == ANSWERS:
        return _advise_elsewhere(one)
    run = shlex.quote(str(one.folder))
    words = ["TRAINING_DATA"] if one.data_is == OTHER else [data, *options]
    if one.network and "--features" not in words:
        words += ["--features", one.network]
    # With its ratio and layout
    split = [] if one.data_is == NAMED else ["--set", f"manifest={one.folder / MANIFEST}"]
    images = shlex.join([*words, *split])
    if one.answer == YES:
        about = _about_contexts(one, images)
        return [about] if one.found.explains_gap else [about, _name_contexts(one, run)]
    if one.found.unanswered.startswith(TRAINING_UNKNOWN) and one.contexts_are == KNOWN:
        return [
            (
                "Name the contexts of the images it was trained on, too, in one table with these;"
                " then it is known which are usual.",
                f"pfdl diagnose {run} TABLE.csv --columns context=NAME",
            )
        ]
    if one.contexts_are != KNOWN or not one.found.explains_gap:
        return [_name_contexts(one, run)]
    if one.answer == NO or one.found.unanswered == BALANCED:
        return [
            (
                "No change is needed for these contexts. Test other data.",
                f"pfdl evaluate {run} OTHER_DATA",
            )
        ]
    return [
        (
            "Give more images that were not trained on, in all contexts.",
            f"pfdl diagnose {run} MORE_DATA",
        )
    ]


def _advise_elsewhere(one: ImageDiagnosis) -> list[tuple[str, str]]:
    """Return what to try with a model that was trained elsewhere."""
    table = shlex.quote(str(one.folder))
    again = f"pfdl diagnose --predictions {table} IMAGES"
    if one.answer == YES and one.found.explains_gap:
        return [
            (
                "Draw every class in every context equally often in training; in pfdl:",
                "pfdl train IMAGES --contexts inferred --sampler groups",
            )
        ]
    if one.contexts_are != KNOWN or not one.found.explains_gap:
        return [("Name the contexts of the images in a column 'context' of the table.", again)]
    if one.found.unanswered.startswith(TRAINING_UNKNOWN):
        return [
            (
                "Add the training images to the table, with their contexts and the split train;"
                " then it is known which contexts are usual.",
                again,
            )
        ]
    if one.answer == NO or one.found.unanswered == BALANCED:
        return [("No change is needed for these contexts. Test other data.", again)]
    return [("Give more images that were not trained on, in all contexts.", again)]


def _name_contexts(one: ImageDiagnosis, run: str) -> tuple[str, str]:
    """Ask for contexts that can be measured: of the images that were trained on, too."""
    which = "other" if one.contexts_are == KNOWN else "the"
    return (
        f"Name {which} contexts of the test images and of those it was trained on, in a column of"
        " a table; then it can be measured whether they matter.",
        f"pfdl diagnose {run} TABLE.csv --columns context=NAME",
    )


def _about_contexts(one: ImageDiagnosis, images: str) -> tuple[str, str]:
    """Name a training like that of the run but for what it does about contexts, and that was not
    tried already.
    """
    plain = replace(
        one.training,
        objective="erm",
        objective_settings={},
        sampler="shuffle",
        sampler_power=1.0,
        contexts="known" if one.contexts_are == KNOWN else "inferred",
        infer_by="auto",  # as they were found here
        confirm=True,
    )
    balanced, worst = replace(plain, sampler="groups"), replace(plain, objective="groupdro")
    name = one.folder.name.removesuffix("-groupdro").removesuffix("-groups")
    if one.training == worst:
        command = _train("MORE_DATA", one.training, one.folder.with_name(f"{name}-more"))
        return "Add training images of the affected classes in other contexts.", command
    then = ", then compare (pfdl diagnose … --compare)."
    if one.training == balanced:
        folder = one.folder.with_name(f"{name}-groupdro")
        what = "Train with an objective that looks at the worst group"
        return f"{what}{then}", _train(images, worst, folder)
    instead = ""
    if one.training.objective != "erm":
        instead = f", with plain erm instead of {one.training.objective}"
    what = f"Draw every class in every context equally often{instead}"
    return f"{what}{then}", _train(images, balanced, one.folder.with_name(f"{name}-groups"))


def _train(images: str, config: TrainingConfig, folder: Path) -> str:
    return f"pfdl train {images} {shlex.join([*write_options(config), '-o', str(folder)])}"
