"""How to train: every setting, and what fits together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pfdl._internal.validation import check_choice, check_count
from pfdl.contexts.inference import METHODS
from pfdl.data.manifest import Manifest
from pfdl.objectives import Objective
from pfdl.vision.backbones.zoo import check_backbone_name
from pfdl.vision.classifier import OPTIMIZERS, SCHEDULES
from pfdl.vision.datamodule import CONTEXTS, SAMPLERS
from pfdl.vision.metrics import SELECTIONS
from pfdl.vision.pixels import AUGMENTATIONS

PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed"}


@dataclass(frozen=True)
class TrainingConfig:
    """How to train; all of it is written into the run folder, and a run resumes only under the same config.

    Args:
        backbone: A name for :func:`pfdl.vision.backbones.make_backbone`.
        objective: A name for :func:`pfdl.make_objective`.
        contexts: What training may know of contexts: ``"hidden"``, ``"known"`` or ``"inferred"``, as in
            :class:`pfdl.lightning.ContextDataModule`; some objectives need one of the latter two.
        infer_by: How contexts are inferred: the ``method`` of :func:`pfdl.infer_contexts`.
        confirm: Whether inferred contexts must be confirmed on held-out training images, as
            :func:`pfdl.infer_contexts` does; otherwise the most stable ones are taken as they are.
        objective_settings: Settings of the objective's parts, by their names.
        image_size: Height and width that images are scaled to.
        small_stem: For ResNets, a 3×3 stem without pooling, for images up to about 64×64.
        pretrained: Start from the weights that the backbone's library offers, which are downloaded.
        weights: A local file of weights to start from.
        epochs: Passes over the training set.
        batch_size: Images per step.
        sampler: ``"shuffle"``, or ``"groups"`` to draw all groups (one class in one context) equally often.
        optimizer: ``"sgd"`` or ``"adamw"``.
        learning_rate: At the start.
        momentum: Of SGD.
        weight_decay: Of the optimiser.
        schedule: ``"step"`` or ``"cosine"``, as in :class:`pfdl.lightning.ImageClassifier`.
        decay_every: Epochs after which the schedule ``"step"`` takes a tenth of the learning rate.
        augment: ``"none"``, ``"flip-shift"`` or ``"randaugment"``.
        label_smoothing: Share of the target that is spread over all classes.
        select: Which accuracy on the validation set decides the epoch that is kept, and early stopping:
            ``"accuracy"``, ``"worst-class"`` or ``"worst-group"``; the last needs known or inferred contexts.
        patience: Stop when so many epochs have not improved that accuracy; None never does.
        precision: ``"32"``, or ``"bf16"`` for automatic mixed precision.
        seed: Of the initial weights and all that training draws.

    Raises:
        ValueError: If a value cannot be used.
    """

    backbone: str = "resnet18"
    objective: str = "pfdl"
    contexts: str = "hidden"
    infer_by: str = "auto"
    confirm: bool = True
    objective_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    image_size: int = 64
    small_stem: bool = False
    pretrained: bool = False
    weights: str | None = None
    epochs: int = 160
    batch_size: int = 64
    sampler: str = "shuffle"
    optimizer: str = "sgd"
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: str = "step"
    decay_every: int = 80
    augment: str = "flip-shift"
    label_smoothing: float = 0.0
    select: str = "accuracy"
    patience: int | None = None
    precision: str = "32"
    seed: int = 0

    def __post_init__(self) -> None:
        check_backbone_name(self.backbone)
        check_choice("contexts", self.contexts, CONTEXTS)
        check_choice("infer_by", self.infer_by, METHODS)
        if self.infer_by != "auto" and self.contexts != "inferred":
            raise ValueError(
                f"infer_by is {self.infer_by!r}, but contexts is {self.contexts!r}; set contexts to 'inferred'."
            )
        if not self.confirm and self.contexts != "inferred":
            raise ValueError(f"confirm is False, but contexts is {self.contexts!r}; set contexts to 'inferred'.")
        check_choice("sampler", self.sampler, SAMPLERS)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("augment", self.augment, AUGMENTATIONS)
        check_choice("select", self.select, SELECTIONS)
        check_choice("precision", self.precision, PRECISIONS)
        check_count("epochs", self.epochs, 1)
        check_count("seed", self.seed, 0)
        if self.patience is not None:
            check_count("patience", self.patience, 1)

    def options(self) -> list[str]:
        """Return what to type after ``pfdl train DATA`` for the settings that are not the defaults."""
        words: list[str] = []
        for one in fields(self):
            value, option = getattr(self, one.name), f"--{one.name.replace('_', '-')}"
            if one.name == "objective_settings":
                pairs = [(part, name, text) for part, settings in value.items() for name, text in settings.items()]
                for part, name, text in pairs:
                    words += ["--set", f"{part}.{name}={text if isinstance(text, str) else json.dumps(text)}"]
            elif value != one.default and isinstance(value, bool):
                words.append(option if value else f"--no-{option.removeprefix('--')}")
            elif value != one.default:
                words += [option, str(value)]
        return words


def check_sets(config: TrainingConfig, manifest: Manifest) -> None:
    """Refuse what the sets of the manifest do not allow."""
    if "validation" not in manifest.set_names:
        if config.patience is not None:
            raise ValueError("stopping early needs a validation set, and the split has none.")
        if config.select != "accuracy":
            raise ValueError(f"select is {config.select!r}, which needs a validation set; the manifest has none.")


def check_contexts(config: TrainingConfig, objective: Objective, manifest: Manifest) -> None:
    """Refuse what needs contexts where there are none."""
    if config.contexts == "known" and not manifest.has_contexts:
        raise ValueError(
            "contexts is 'known', but these images have none; choose 'inferred' (--contexts inferred) or 'hidden'."
        )
    if config.contexts != "hidden":
        return
    asking = [
        f"the objective {config.objective!r}" * objective.needs_contexts,
        "the sampler 'groups'" * (config.sampler == "groups"),
        "the selection by 'worst-group'" * (config.select == "worst-group"),
    ]
    for one in filter(None, asking):
        known = "--contexts known or --contexts inferred" if manifest.has_contexts else "--contexts inferred"
        why = "they are hidden from it" if manifest.has_contexts else "these images have none"
        raise ValueError(f"{one} needs contexts, and {why}; give {known} (contexts=... in Python).")
