"""Train a classifier on context data, in a run folder that survives being killed."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, RichProgressBar
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor

from pfdl._internal.runs import claim, set_aside, write_table
from pfdl._internal.validation import check_choice, check_count
from pfdl.contexts.inference import CANDIDATES
from pfdl.contexts.statistics import image_statistics
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource
from pfdl.objectives.objective import Objective
from pfdl.vision.checkpoint import ModelConfig
from pfdl.vision.classifier import ImageClassifier
from pfdl.vision.datamodule import ContextDataModule
from pfdl.vision.resume import RunKeeper, TrainingStoppedError, read_state, write_metrics

__all__ = ["MANIFEST", "TrainingPlan", "TrainingStoppedError", "train"]

MANIFEST = "manifest.csv"
SCENES = "scenes.csv"
PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed"}
VALIDATION_ACCURACY = "val_accuracy"


@dataclass(frozen=True)
class TrainingPlan:
    """How to train; all of it is written into the run folder, and a run goes on only under the same plan.

    Args:
        backbone: See :func:`pfdl.vision.backbones.make_backbone`.
        objective: See :func:`pfdl.make_objective`.
        objective_settings: Likewise, by the name of the part.
        image_size: Height and width that images are scaled to.
        small_stem: See :func:`pfdl.vision.backbones.make_backbone`.
        pretrained: Likewise.
        epochs: Passes over the training set.
        batch_size: Images per step.
        learning_rate: Of SGD, at the start.
        momentum: Of SGD.
        weight_decay: Of SGD.
        decay_every: Epochs after which the learning rate falls to a tenth.
        augment: Mirror and shift training images.
        patience: Stop when so many epochs have not improved the accuracy on the validation set; None never does.
        precision: ``"32"``, or ``"bf16"`` for automatic mixed precision.
        seed: Of the initial weights and all that training draws.
    """

    backbone: str = "resnet18"
    objective: str = "pfdl"
    objective_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    image_size: int = 64
    small_stem: bool = False
    pretrained: bool = False
    epochs: int = 160
    batch_size: int = 64
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4
    decay_every: int = 80
    augment: bool = True
    patience: int | None = None
    precision: str = "32"
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs, 1)
        check_count("seed", self.seed, 0)
        check_choice("precision", self.precision, PRECISIONS)
        if self.patience is not None:
            check_count("patience", self.patience, 1)


def train(
    plan: TrainingPlan,
    source: ContextSource,
    manifest: Manifest,
    folder: Path,
    *,
    device: str = "auto",
    num_workers: int = 0,
    progress: bool = False,
) -> Path:
    """Train, or go on with a training that was stopped.

    The weights that are kept are the best on the validation set, which has the distribution of the training set; test
    images are not read. Where the manifest holds nothing out, the last weights are kept.

    Args:
        plan: How to train.
        source: Where the images come from.
        manifest: Which image is in which set; a copy is kept in the folder.
        folder: The run folder; if it holds a stopped run of the same plan and manifest, that run goes on.
        device: ``"cpu"``, ``"cuda"``, or ``"auto"`` for a GPU where there is one.
        num_workers: Processes that load images.
        progress: Whether to draw a progress bar, on standard error.

    Returns:
        The run folder.

    Raises:
        ValueError: If an argument cannot be used, or the folder holds another run.
        OSError: If the folder cannot be written to, or another process works in it.
        TrainingStoppedError: After Ctrl-C or SIGTERM; everything is saved.
    """
    check_choice("device", device, ("auto", "cpu", "cuda"))
    model_config = ModelConfig(plan.backbone, manifest.classes, plan.image_size, plan.small_stem)
    torch.manual_seed(plan.seed)
    model = _make_classifier(plan, manifest)
    data = _KeptContexts(
        folder,
        source,
        manifest,
        image_size=plan.image_size,
        batch_size=plan.batch_size,
        num_workers=num_workers,
        contexts=_told(model.objective),
        describe=model.embed if plan.pretrained else image_statistics,
        seed=plan.seed,
    )
    held_out = "validation" in manifest.set_names
    if plan.patience is not None and not held_out:
        raise ValueError("stopping early needs a validation set, and the manifest holds nothing out.")
    settings = {"model": asdict(model_config), "training": asdict(plan), "split": manifest.sha256}
    with claim(folder, "training", settings):
        manifest.save(folder / MANIFEST)
        state = read_state(folder)
        if state is not None and state["finished"]:
            write_metrics(folder, state["history"])
        else:
            monitor = VALIDATION_ACCURACY if held_out else None
            _fit(
                model, data, RunKeeper(model.backbone, folder, seed=plan.seed, monitor=monitor), plan, device, progress
            )
    return folder


def _told(objective: Objective) -> str:
    """What training may know of contexts."""
    if objective.infers_contexts:
        return "inferred"
    return "known" if "environments" in objective.needs else "hidden"


class _KeptContexts(ContextDataModule):
    """Inferred contexts are kept beside the run: it goes on with the same ones, and a user can look at them."""

    def __init__(self, folder: Path, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.folder = folder

    def infer(self) -> Tensor:
        """Those of the run folder, if it has all of them, else found and written there."""
        path, images = self.folder / SCENES, self.train_set
        try:
            kept = pd.read_csv(path)
            if kept["path"].tolist() == images.paths:
                return torch.tensor(kept["scene"].to_numpy(dtype="int64"))
            raise ValueError(f"{path} is not about the training images.")
        except FileNotFoundError:
            pass
        except (KeyError, ValueError) as error:
            set_aside(path, error, "contexts are inferred anew")
        found = super().infer()
        write_table(path, pd.DataFrame({"path": images.paths, "scene": found.tolist()}).to_csv(index=False))
        return found


def _fit(
    model: ImageClassifier, data: ContextDataModule, keeper: RunKeeper, plan: TrainingPlan, device: str, progress: bool
) -> None:
    callbacks: list[Callback] = [keeper]
    if plan.patience is not None:
        callbacks.append(EarlyStopping(VALIDATION_ACCURACY, patience=plan.patience, mode="max"))
    if progress:
        callbacks.append(_ProgressBar(console_kwargs={"stderr": True}))  # what is piped stays clean
    with _quiet_lightning():
        trainer = Trainer(
            max_epochs=plan.epochs,
            accelerator="gpu" if device == "cuda" else device,
            devices=1,
            precision=PRECISIONS[plan.precision],  # type: ignore[arg-type]
            callbacks=callbacks,
            logger=_tensorboard(keeper.folder),
            enable_checkpointing=False,
            enable_progress_bar=progress,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            log_every_n_steps=1,
        )
        trainer.fit(model, data)


def _make_classifier(plan: TrainingPlan, manifest: Manifest) -> ImageClassifier:
    settings = {name: dict(values) for name, values in plan.objective_settings.items()}
    if "groupdro" in plan.objective.split("+"):
        number = max(CANDIDATES) if "pfdl" in plan.objective.split("+") else len(manifest.contexts)
        settings["groupdro"] = {"num_environments": number, **settings.get("groupdro", {})}
    return ImageClassifier(
        plan.backbone,
        len(manifest.classes),
        plan.objective,
        objective_settings=settings,
        image_size=plan.image_size,
        small_stem=plan.small_stem,
        pretrained=plan.pretrained,
        learning_rate=plan.learning_rate,
        momentum=plan.momentum,
        weight_decay=plan.weight_decay,
        decay_every=plan.decay_every,
        augment=plan.augment,
    )


def _tensorboard(folder: Path) -> TensorBoardLogger | bool:
    if find_spec("tensorboard") is None:
        return False
    return TensorBoardLogger(folder, name="", version="tensorboard")


class _ProgressBar(RichProgressBar):
    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """All but the logger's version, which says nothing here."""
        return {name: value for name, value in super().get_metrics(trainer, pl_module).items() if name != "v_num"}


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Without the tips, and the warnings that do not apply here: small sets are fastest without workers."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for message in (
                ".*does not have many workers.*",
                ".*`training_step` returned `None`.*",
                ".*isinstance.*LeafSpec.*",
                ".*GPU available but not used.*",
                ".*lr_scheduler.step.*before.*optimizer.step.*",
                ".*Total length of `list` across ranks is zero.*",
            ):
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        logger.setLevel(level)
