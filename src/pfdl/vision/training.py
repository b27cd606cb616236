"""Train a classifier on context data, in a run folder that survives being killed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from pfdl._internal.files import read_json, read_table, write_atomically, write_json
from pfdl._internal.processes import from_first, gather_objects, noticing_loss, rank
from pfdl._internal.runs import INFERRED_CONTEXTS, MANIFEST, WHY_CONTEXTS, claim, set_aside
from pfdl.contexts import InferredContexts
from pfdl.data.context_images import ContextImages
from pfdl.data.images import hash_bytes
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource
from pfdl.vision.checkpoint import ModelConfig
from pfdl.vision.classifier import ImageClassifier
from pfdl.vision.config import PRECISIONS, TrainingConfig, check_contexts, check_sets
from pfdl.vision.datamodule import ContextDataModule, check_share
from pfdl.vision.features import embed
from pfdl.vision.launching import Devices, choose_devices
from pfdl.vision.loggers import check_loggers, close_loggers, make_loggers
from pfdl.vision.metrics import SELECTIONS
from pfdl.vision.progress import ProgressBar, quiet_lightning, report_epochs, say
from pfdl.vision.resume import ResumeCallback, check_folder, read_state, write_metrics
from pfdl.vision.stepping import SteppingClassifier
from pfdl.vision.stopping import StopRequest, TrainingStoppedError

__all__ = ["MANIFEST", "TrainingConfig", "TrainingStoppedError", "train"]


def train(
    config: TrainingConfig,
    source: ContextSource,
    manifest: Manifest,
    folder: Path,
    *,
    device: str = "auto",
    devices: int | None = None,
    nodes: int | None = None,
    strategy: str = "auto",
    num_workers: int = 0,
    loggers: Sequence[str] | None = None,
    progress: bool = False,
) -> Path:
    """Train, or resume a training that was stopped.

    The weights that are kept are the best on the validation set, which has the distribution of the training set; test
    images are not read. Where the manifest holds nothing out, the last weights are kept.

    Args:
        config: How to train.
        source: Where the images come from.
        manifest: Which image is in which set; a copy is kept in the folder.
        folder: The run folder; if it holds a stopped run of the same config and manifest, that run resumes.
        device: ``"cpu"``, ``"cuda"``, or ``"auto"`` for a GPU where there is one.
        devices: Devices on each node, with a process for each (``docs/distributed.md``); by default one, or as many
            processes as torchrun or srun started. The first process alone writes to the folder.
        nodes: Number of machines; by default one, or as many as torchrun or srun uses. With one device on one node,
            both given, this process trains by itself, whatever started it.
        strategy: How processes share the model: ``"ddp"``, ``"fsdp"``, or ``"auto"`` for the first.
        num_workers: Processes that load images, for each device.
        loggers: Where to log beside ``metrics.csv``: ``"tensorboard"``, ``"wandb"``, ``"mlflow"``; by default
            TensorBoard where it is installed.
        progress: Whether to show progress on standard error: a bar on a terminal, elsewhere one line per epoch.

    Returns:
        The run folder.

    Raises:
        ValueError: If an argument cannot be used, the folder holds another run, or training diverges.
        OSError: If the folder cannot be written to, another training works in it, or a process of this one was lost.
        OtherProcessError: In the other processes, if the first one raises one of these alone.
        ImportError: If a package that the config asks for is not installed.
        TrainingStoppedError: After Ctrl-C or SIGTERM; everything is saved.
    """
    check_loggers(loggers or ())
    place = choose_devices(device, devices, nodes, strategy)
    check_sets(config, manifest)
    check_share(config.batch_size, place.processes)
    place.start()
    shows = progress and rank() == 0
    with noticing_loss(), StopRequest() as stop, ExitStack() as held:
        torch.manual_seed(config.seed)
        model = _make_classifier(config, manifest)
        check_contexts(config, model.objective, manifest)
        data = _make_data(config, source, manifest, folder, num_workers, _describe_images(config, model, device))
        settings = _settings(config, manifest, place.processes)
        if any(theirs != settings for theirs in gather_objects(settings)):
            raise ValueError(f"the processes do not train alike; process {rank()} has the settings {settings}.")
        if from_first(lambda: _open_folder(folder, settings, manifest, held)):
            return folder
        data.setup("fit")
        if shows and data.inferred is not None:
            say(data.inferred.sentence)
            if data.inferred.number == 1:
                say(
                    "With one context there is nothing to balance: the sampler, balance and GroupDRO change nothing. "
                    "If the images do have contexts, name them in folders or a column (--contexts known), or take "
                    "clusters without this check (--no-confirm)."
                )
        model.prepare(data.train_set.labels, data.train_contexts)
        resume = ResumeCallback(
            model,
            folder,
            seed=config.seed,
            monitor=SELECTIONS[config.select] if "validation" in manifest.set_names else None,
            patience=config.patience,
            stop=stop,
            report=report_epochs(config.epochs) if shows and not sys.stderr.isatty() else None,
        )
        _fit(model, data, resume, config, place, loggers, show_bar=shows and sys.stderr.isatty())
    return folder


def _settings(config: TrainingConfig, manifest: Manifest, processes: int) -> dict[str, Any]:
    """Return all that changes results, for the run folder."""
    model = ModelConfig(config.backbone, manifest.classes, config.image_size, config.small_stem)
    settings: dict[str, Any] = {"model": asdict(model), "training": asdict(config), "split": manifest.sha256}
    if config.weights is not None:
        settings["weights"] = hash_bytes(Path(config.weights).read_bytes())
    if processes > 1:  # each normalises its own part of a batch and draws its own augmentation
        settings["processes"] = processes
    return settings


def _open_folder(folder: Path, settings: Mapping[str, Any], manifest: Manifest, held: ExitStack) -> bool:
    """Lock the run folder until ``held`` is closed; return whether the training in it is finished."""
    held.enter_context(claim(folder, "training", settings))
    manifest.save(folder / MANIFEST)
    state = read_state(folder)
    if state is None or not state["finished"]:
        return False
    write_metrics(folder, state["history"])
    return True


def _make_classifier(config: TrainingConfig, manifest: Manifest) -> ImageClassifier:
    return SteppingClassifier(
        config.backbone,
        len(manifest.classes),
        config.objective,
        objective_settings=config.objective_settings,
        image_size=config.image_size,
        small_stem=config.small_stem,
        pretrained=config.pretrained,
        weights=config.weights,
        optimizer=config.optimizer,
        learning_rate=config.learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        schedule=config.schedule,
        decay_every=config.decay_every,
        augment=config.augment,
        label_smoothing=config.label_smoothing,
    )


def _describe_images(config: TrainingConfig, model: ImageClassifier, device: str) -> Callable[[Tensor], Tensor] | None:
    """Return what gives features to infer contexts from, if the network has learnt something; else None."""
    if not config.pretrained and config.weights is None:
        return None
    place = "cuda" if device == "auto" and torch.cuda.is_available() else device.replace("auto", "cpu")
    return lambda images: embed(model.backbone, images, device=place)


def _make_data(
    config: TrainingConfig,
    source: ContextSource,
    manifest: Manifest,
    folder: Path,
    num_workers: int,
    describe: Callable[[Tensor], Tensor] | None,
) -> ContextDataModule:
    return _KeptContexts(
        folder,
        source,
        manifest,
        image_size=config.image_size,
        batch_size=config.batch_size,
        num_workers=num_workers,
        contexts=config.contexts,
        infer_by=config.infer_by,
        confirm=config.confirm,
        validation_contexts=config.select == "worst-group",
        sampler=config.sampler,
        describe=describe,
        seed=config.seed,
    )


class _KeptContexts(ContextDataModule):
    """Keep inferred contexts beside the run: it resumes with the same ones, and a user can look at them."""

    def __init__(self, folder: Path, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.folder = folder

    def infer(self, sets: Sequence[ContextImages]) -> InferredContexts:
        """Return those of the run folder, if it has all of them, else infer them and write them there."""
        table, words = self.folder / INFERRED_CONTEXTS, self.folder / WHY_CONTEXTS
        paths = [one for images in sets for one in images.paths]
        try:
            kept, why = read_table(table), read_json(words)
            contexts, sentence = kept["context"].to_numpy(dtype="int64"), why["sentence"]
            if kept["path"].tolist() == paths and contexts.min() >= 0 and isinstance(sentence, str):
                return InferredContexts(contexts, str(why["method"]), sentence, ())
            raise ValueError(f"{table} is not about the training images.")
        except FileNotFoundError:
            pass
        except (KeyError, TypeError, ValueError) as error:
            set_aside(table, error, "contexts are inferred again")
        found = super().infer(sets)
        write_json(words, found.to_dict())
        write_atomically(table, pd.DataFrame({"path": paths, "context": found.contexts.tolist()}).to_csv(index=False))
        return found


def _fit(
    model: ImageClassifier,
    data: ContextDataModule,
    resume: ResumeCallback,
    config: TrainingConfig,
    place: Devices,
    loggers: Sequence[str] | None,
    *,
    show_bar: bool,
) -> None:
    callbacks: list[Callback] = [resume]
    if show_bar:
        callbacks.append(ProgressBar())
    with quiet_lightning():
        trainer = Trainer(
            max_epochs=config.epochs,
            precision=PRECISIONS[config.precision],  # type: ignore[arg-type]
            callbacks=callbacks,
            logger=make_loggers(loggers, resume.folder),
            enable_progress_bar=show_bar,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            log_every_n_steps=0,  # all that is logged is logged when an epoch ends
            **place.for_trainer(),
        )
        try:
            trainer.fit(model, data)
        except OSError:
            check_folder(resume.folder)  # without it a logger fails first, and less clearly
            raise
        finally:
            close_loggers(trainer.loggers)
