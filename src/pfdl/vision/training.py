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

from pfdl._internal.files import read_table, write_atomically
from pfdl._internal.runs import claim, set_aside
from pfdl._internal.validation import check_choice, check_count
from pfdl.contexts.statistics import image_statistics
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource
from pfdl.objectives import Objective
from pfdl.vision.checkpoint import ModelConfig
from pfdl.vision.classifier import ImageClassifier
from pfdl.vision.datamodule import ContextDataModule
from pfdl.vision.resume import RunKeeper, TrainingStoppedError, read_state, write_metrics

__all__ = ["MANIFEST", "TrainingConfig", "TrainingStoppedError", "train"]

MANIFEST = "manifest.csv"
INFERRED_CONTEXTS = "contexts.csv"
PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed"}
VALIDATION_ACCURACY = "val_accuracy"


@dataclass(frozen=True)
class TrainingConfig:
    """How to train; all of it is written into the run folder, and a run goes on only under the same config.

    Args:
        backbone: See :func:`pfdl.vision.backbones.make_backbone`.
        objective: See :func:`pfdl.make_objective`.
        contexts: What training may know of contexts: ``"hidden"``, ``"known"`` or ``"inferred"``, see
            :class:`pfdl.lightning.ContextDataModule`; some objectives need one of the latter two.
        objective_settings: Settings of the objective's parts, by their names.
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
    contexts: str = "hidden"
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
    config: TrainingConfig,
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
        config: How to train.
        source: Where the images come from.
        manifest: Which image is in which set; a copy is kept in the folder.
        folder: The run folder; if it holds a stopped run of the same config and manifest, that run goes on.
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
    model_config = ModelConfig(config.backbone, manifest.classes, config.image_size, config.small_stem)
    torch.manual_seed(config.seed)
    model = _make_classifier(config, manifest)
    _check_contexts(config, model.objective, manifest)
    data = _KeptContexts(
        folder,
        source,
        manifest,
        image_size=config.image_size,
        batch_size=config.batch_size,
        num_workers=num_workers,
        contexts=config.contexts,
        describe=model.embed if config.pretrained else image_statistics,
        seed=config.seed,
    )
    held_out = "validation" in manifest.set_names
    if config.patience is not None and not held_out:
        raise ValueError("stopping early needs a validation set, and the manifest holds nothing out.")
    settings = {"model": asdict(model_config), "training": asdict(config), "split": manifest.sha256}
    with claim(folder, "training", settings):
        manifest.save(folder / MANIFEST)
        state = read_state(folder)
        if state is not None and state["finished"]:
            write_metrics(folder, state["history"])
        else:
            monitor = VALIDATION_ACCURACY if held_out else None
            _fit(
                model,
                data,
                RunKeeper(model.backbone, folder, seed=config.seed, monitor=monitor),
                config,
                device,
                progress,
            )
    return folder


def _check_contexts(config: TrainingConfig, objective: Objective, manifest: Manifest) -> None:
    """Refuse an objective that needs contexts where there are none."""
    check_choice("contexts", config.contexts, ("hidden", "known", "inferred"))
    if config.contexts == "known" and not manifest.has_contexts:
        raise ValueError("contexts is 'known', but these images have no contexts; choose 'inferred' or 'hidden'.")
    if objective.needs_contexts and config.contexts == "hidden":
        known = "'known' or 'inferred'" if manifest.has_contexts else "'inferred', because these images have none"
        raise ValueError(
            f"the objective {config.objective!r} needs contexts, and they are hidden from it; set contexts to {known}."
        )


class _KeptContexts(ContextDataModule):
    """Inferred contexts are kept beside the run: it goes on with the same ones, and a user can look at them."""

    def __init__(self, folder: Path, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.folder = folder

    def infer(self) -> Tensor:
        """Those of the run folder, if it has all of them, else found and written there."""
        path, images = self.folder / INFERRED_CONTEXTS, self.train_set
        try:
            kept = read_table(path)
            if kept["path"].tolist() == images.paths:
                return torch.tensor(kept["context"].to_numpy(dtype="int64"))
            raise ValueError(f"{path} is not about the training images.")
        except FileNotFoundError:
            pass
        except (KeyError, ValueError) as error:
            set_aside(path, error, "contexts are inferred again")
        found = super().infer()
        write_atomically(path, pd.DataFrame({"path": images.paths, "context": found.tolist()}).to_csv(index=False))
        return found


def _fit(
    model: ImageClassifier,
    data: ContextDataModule,
    keeper: RunKeeper,
    config: TrainingConfig,
    device: str,
    progress: bool,
) -> None:
    callbacks: list[Callback] = [keeper]
    if config.patience is not None:
        callbacks.append(EarlyStopping(VALIDATION_ACCURACY, patience=config.patience, mode="max"))
    if progress:
        callbacks.append(_ProgressBar(console_kwargs={"stderr": True}))  # what is piped stays clean
    with _quiet_lightning():
        trainer = Trainer(
            max_epochs=config.epochs,
            accelerator="gpu" if device == "cuda" else device,
            devices=1,
            precision=PRECISIONS[config.precision],  # type: ignore[arg-type]
            callbacks=callbacks,
            logger=_tensorboard(keeper.folder),
            enable_checkpointing=False,
            enable_progress_bar=progress,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            log_every_n_steps=1,
        )
        trainer.fit(model, data)


def _make_classifier(config: TrainingConfig, manifest: Manifest) -> ImageClassifier:
    return ImageClassifier(
        config.backbone,
        len(manifest.classes),
        config.objective,
        objective_settings=config.objective_settings,
        image_size=config.image_size,
        small_stem=config.small_stem,
        pretrained=config.pretrained,
        learning_rate=config.learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        decay_every=config.decay_every,
        augment=config.augment,
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
