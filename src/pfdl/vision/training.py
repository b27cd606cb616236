"""Train a classifier on context data, in a run folder that survives being killed."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from pfdl._internal.processes import from_first, gather_objects, noticing_loss, rank
from pfdl._internal.progress import counting
from pfdl._internal.runs import MANIFEST, claim
from pfdl.data.images import hash_bytes
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource
from pfdl.vision.checkpoint import ModelConfig
from pfdl.vision.classifier import Classifier
from pfdl.vision.config import SELECTIONS, TrainingConfig, check_contexts, check_sets
from pfdl.vision.features import embed
from pfdl.vision.launching import Devices, choose_devices, make_fabric
from pfdl.vision.loggers import check_loggers, close_loggers, make_loggers
from pfdl.vision.loop import Loop
from pfdl.vision.resume import RunKeeper, check_folder, read_state, write_metrics
from pfdl.vision.stopping import StopRequest, TrainingStoppedError
from pfdl.vision.training_data import TrainingData, check_share

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
        OSError: If the folder cannot be written to, another training works in it, or a process of this one was lost,
            one that trains or one that loads images.
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
    with noticing_loss(), _noticing_dead_workers(), StopRequest() as stop, ExitStack() as held:
        torch.manual_seed(config.seed)
        model = Classifier(config, len(manifest.classes))
        check_contexts(config, model.objective, manifest)
        describe = _describe_images(config, model, device)
        data = TrainingData(config, source, manifest, num_workers=num_workers, describe=describe, folder=folder)
        settings = _settings(config, manifest, place.processes)
        if any(theirs != settings for theirs in gather_objects(settings)):
            raise ValueError(f"the processes do not train alike; process {rank()} has the settings {settings}.")
        if from_first(lambda: _open_folder(folder, settings, manifest, held)):
            return folder
        data.setup("fit")
        if shows and data.inferred is not None:
            _say(data.inferred.sentence)
            if data.inferred.number == 1:
                _say(
                    "With one context there is nothing to balance: the sampler, balance and GroupDRO change nothing. "
                    "If the images do have contexts, name them in folders or a column (--contexts known), or take "
                    "clusters without this check (--set confirm=false)."
                )
        model.check_contexts(data.train_contexts)
        model.prepare(data.train_set.labels, data.train_contexts)
        _run(model, data, folder, stop, place, loggers, shows)
    return folder


@contextmanager
def _noticing_dead_workers() -> Iterator[None]:
    """Raise ChildProcessError, with a sentence, where a process that loads images was killed.

    PyTorch raises its own error wherever training happens to be when the signal comes, not only where a batch is read.
    """
    try:
        yield
    except RuntimeError as error:
        if not re.search(r"DataLoader worker .*(exited unexpectedly|is killed by signal)", str(error)):
            raise
        raise ChildProcessError(
            "a process that loads images ended unexpectedly, perhaps for want of memory; the same command resumes the "
            "training. If that happens again, let fewer load (--set workers=0)."
        ) from error


def _run(
    model: Classifier,
    data: TrainingData,
    folder: Path,
    stop: StopRequest,
    place: Devices,
    loggers: Sequence[str] | None,
    shows: bool,
) -> None:
    """Train what is left of a run, and keep it in its folder."""
    config = model.config
    log_to = make_loggers(loggers, folder) if rank() == 0 else []
    loop = Loop(model, data.train_dataloader(), make_fabric(place, config.precision, log_to))
    monitor = SELECTIONS[config.select] if "validation" in data.manifest.set_names else None
    keeper = RunKeeper(loop, folder, monitor=monitor, stop=stop)
    keeper.restore()
    validation, steps = data.val_dataloader(), len(loop.batches)
    status = "failed"
    try:
        with counting("training", Console(stderr=True) if shows else None) as show:
            while not keeper.is_finished:
                keeper.before_epoch()
                began = time.monotonic()
                for _ in loop.train_epoch():
                    keeper.after_step()
                    show(loop.epoch * steps + loop.step, config.epochs * steps)
                start = {"epoch": loop.epoch, "learning_rate": loop.learning_rate}
                figures = loop.validate(validation)
                row = {**start, **loop.end_epoch(), **figures}
                keeper.after_epoch(row)
                loop.fabric.log_dict(row, step=loop.epoch - 1)
                if shows:
                    _say(_describe_epoch(row, config.epochs, time.monotonic() - began))
            keeper.finish()
        status = "success"
    except OSError:
        check_folder(folder)  # without it a logger fails first, and less clearly
        raise
    finally:
        close_loggers(log_to, status)


def _say(text: str) -> None:
    """Print a line on standard error, at once."""
    print(text, file=sys.stderr, flush=True)


def _describe_epoch(row: Mapping[str, float], epochs: int, seconds: float) -> str:
    shown = {"train_loss": "loss", "train_accuracy": "accuracy", "val_accuracy": "validation accuracy"}
    parts = [f"{words} {row[name]:.4f}" for name, words in shown.items() if name in row]
    return f"epoch {int(row['epoch']) + 1}/{epochs}: {', '.join(parts)} ({seconds:.1f} s)"


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


def _describe_images(config: TrainingConfig, model: Classifier, device: str) -> Callable[[Tensor], Tensor] | None:
    """Return what gives features to infer contexts from, if the network has learnt something; else None."""
    if not config.pretrained and config.weights is None:
        return None
    place = "cuda" if device == "auto" and torch.cuda.is_available() else device.replace("auto", "cpu")
    return lambda images: embed(model.backbone, images, device=place)
