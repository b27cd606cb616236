"""What to try after a diagnosis, ranked by what it rests on."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pfdl._internal.settings import write_options
from pfdl.diagnosis.verdict import NO, YES
from pfdl.vision.backbones.zoo import OURS
from pfdl.vision.config import TrainingConfig
from pfdl.vision.diagnosis import INFERRED, KNOWN, UNCONFIRMED, UNKNOWN, ImageDiagnosis

PRETRAINED = "resnet18"
"""What to start from pretrained weights where the run's own backbone has none."""


class Advice(NamedTuple):
    """One thing to try.

    Attributes:
        sentence: What to do, and why.
        command: What to type.
        unproven: Whether nothing in the diagnosis shows that it would help.
    """

    sentence: str
    command: str
    unproven: bool = False

    def __str__(self) -> str:
        return f"Unproven: {self.sentence}" if self.unproven else self.sentence


def advise(one: ImageDiagnosis, data: str, options: Sequence[str] = ()) -> list[Advice]:
    """Return what to try next, what is best supported first.

    Args:
        one: The diagnosis.
        data: What the user called the data on the command line.
        options: Further words of the command line that say how to read the data.
    """
    run, images = shlex.quote(str(one.folder)), shlex.join([data, *options])
    label = Advice(
        "Name the contexts of some images of each class, in a column of a table; then it can be measured whether they "
        "matter.",
        f"pfdl diagnose {run} TABLE.csv --columns context=NAME",
    )
    elsewhere = [] if one.explains_gap else [label, *_pretrained(one, images)]
    if one.answer == YES and one.contexts_are != UNCONFIRMED:
        return [_about_contexts(one, images), *elsewhere]
    if one.answer == YES:
        return [label, *_pretrained(one, images), _about_contexts(one, images)]
    if elsewhere or one.contexts_are == UNKNOWN:
        return elsewhere or [label]
    if one.answer == NO:
        return [Advice("No change is needed for these contexts. Test other data.", f"pfdl evaluate {run} OTHER_DATA")]
    return [Advice("Give more images that were not trained on, in all contexts.", f"pfdl diagnose {run} MORE_DATA")]


def _pretrained(one: ImageDiagnosis, images: str) -> list[Advice]:
    """Return the same training from pretrained weights, unless it was that."""
    now = one.training
    if now.pretrained or now.weights is not None:
        return []
    backbone = PRETRAINED if now.backbone in OURS else now.backbone
    better = replace(now, backbone=backbone, pretrained=True, small_stem=False)
    folder = one.folder.with_name(f"{one.folder.name}-pretrained")
    sentence = "Start from pretrained weights, so that less is learnt from these training images alone."
    return [Advice(sentence, _train(images, better, folder), unproven=True)]


def _about_contexts(one: ImageDiagnosis, images: str) -> Advice:
    """Name a training like that of the run but for what it does about contexts, and that was not tried already."""
    confirmed = one.contexts_are != UNCONFIRMED
    contexts: dict[str, Any] = {
        "contexts": KNOWN if one.contexts_are == KNOWN else INFERRED,
        "infer_by": "auto" if confirmed else "pooled",  # as they were found here
        "confirm": confirmed,
    }
    plain = replace(one.training, objective_settings={}, sampler="shuffle", **contexts)
    tries = {
        "groups": (
            "Draw every class in every context equally often, then compare (pfdl diagnose … --compare).",
            replace(plain, objective="erm", sampler="groups"),
        ),
        "groupdro": (
            "Train with an objective that looks at the worst group, then compare (pfdl diagnose … --compare).",
            replace(plain, objective="groupdro"),
        ),
    }
    name = one.folder.name
    for suffix in tries:
        name = name.removesuffix(f"-{suffix}")
    tried = [config for _, config in tries.values()]
    if one.training == tried[-1]:
        command = _train("MORE_DATA", one.training, one.folder.with_name(f"{name}-more"))
        return Advice("Add training images of the affected classes in other contexts.", command)
    suffix, (sentence, config) = list(tries.items())[one.training == tried[0]]
    folder = one.folder.with_name(f"{name}-{suffix}{'' if confirmed else '-unconfirmed'}")
    return Advice(sentence, _train(images, config, folder), unproven=not confirmed)


def _train(images: str, config: TrainingConfig, folder: Path) -> str:
    return f"pfdl train {images} {shlex.join([*write_options(config), '-o', str(folder)])}"
