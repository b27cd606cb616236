"""What to try after a diagnosis, ranked by what it rests on."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pfdl._internal.settings import write_options
from pfdl.diagnosis.result import BALANCED
from pfdl.diagnosis.verdict import NO, YES
from pfdl.runs import MANIFEST
from pfdl.vision.config import TrainingConfig
from pfdl.vision.diagnosis import KNOWN, NAMED, OTHER, UNCONFIRMED, UNKNOWN, ImageDiagnosis


def advise(one: ImageDiagnosis, data: str, options: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return what to try next, what is best supported first: a sentence, and what to type.

    The sentence begins with "Unproven" where nothing in the diagnosis shows that it helps.

    Args:
        one: The diagnosis.
        data: What the user called the data on the command line.
        options: Further words of the command line that say how to read the data.
    """
    run = shlex.quote(str(one.folder))
    words = ["TRAINING_DATA"] if one.data_is == OTHER else [data, *options]
    # With its ratio and layout
    split = [] if one.data_is == NAMED else ["--set", f"manifest={one.folder / MANIFEST}"]
    images = shlex.join([*words, *split])
    label = (
        (
            f"Name {'other' if one.contexts_are == KNOWN else 'the'} contexts of some images of"
            " each class, in a column of a table; then it can be measured whether they matter."
        ),
        f"pfdl diagnose {run} TABLE.csv --columns context=NAME",
    )
    more = [] if one.found.explains_gap else [label]
    if one.answer == YES and one.contexts_are != UNCONFIRMED:
        return [_about_contexts(one, images), *more]
    if one.answer == YES:
        return [label, _about_contexts(one, images)]
    if more or one.contexts_are == UNKNOWN:
        return [label]
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


def _about_contexts(one: ImageDiagnosis, images: str) -> tuple[str, str]:
    """Name a training like that of the run but for what it does about contexts, and that was not
    tried already.
    """
    confirmed = one.contexts_are != UNCONFIRMED
    plain = replace(
        one.training,
        objective="erm",
        objective_settings={},
        sampler="shuffle",
        sampler_power=1.0,
        contexts="known" if one.contexts_are == KNOWN else "inferred",
        infer_by="auto" if confirmed else "pooled",  # as they were found here
        confirm=confirmed,
    )
    balanced, worst = replace(plain, sampler="groups"), replace(plain, objective="groupdro")
    name = one.folder.name.removesuffix("-groupdro").removesuffix("-groups")
    if one.training == worst:
        command = _train("MORE_DATA", one.training, one.folder.with_name(f"{name}-more"))
        return "Add training images of the affected classes in other contexts.", command
    instead = (
        ""
        if one.training.objective == "erm"
        else f", with plain erm instead of {one.training.objective}"
    )
    what, config, suffix = (
        f"Draw every class in every context equally often{instead}",
        balanced,
        "groups",
    )
    if one.training == balanced:
        what, config, suffix = (
            "Train with an objective that looks at the worst group",
            worst,
            "groupdro",
        )
    folder = one.folder.with_name(f"{name}-{suffix}{'' if confirmed else '-unconfirmed'}")
    sentence = (
        f"{'' if confirmed else 'Unproven: '}{what}, then compare (pfdl diagnose … --compare)."
    )
    return sentence, _train(images, config, folder)


def _train(images: str, config: TrainingConfig, folder: Path) -> str:
    return f"pfdl train {images} {shlex.join([*write_options(config), '-o', str(folder)])}"
