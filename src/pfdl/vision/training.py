"""Train a classifier on context data, in a run folder that survives being killed."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch.utils.data import DataLoader

from pfdl._internal.processes import gather_objects, rank, report_lost_process, run_on_first
from pfdl._internal.progress import progress_bar
from pfdl.contexts.finders import reads_logits
from pfdl.data.images import hash_bytes
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource
from pfdl.runs import MANIFEST, claim
from pfdl.vision.checkpoint import ModelConfig
from pfdl.vision.classifier import Classifier
from pfdl.vision.config import SELECTIONS, TrainingConfig, check_contexts, check_sets
from pfdl.vision.first_network import first_logits
from pfdl.vision.inferring import describe_by
from pfdl.vision.launching import choose_devices, make_fabric
from pfdl.vision.loop import Loop
from pfdl.vision.resume import (
    RunKeeper,
    TrainingStoppedError,
    check_folder,
    read_state,
    stop_signals,
    write_metrics,
)
from pfdl.vision.training_data import TrainingData

ESTIMATE_AFTER = 5.0
"""Seconds of training after which it is said how long the whole takes."""

WITHOUT_CONTEXTS = (
    "With one context there is nothing to balance: the sampler, balance and GroupDRO change"
    " nothing, and this is plain training. To find contexts, start from a pretrained network (--set"
    " pretrained=true), or name the contexts in folders or a column (--contexts known). Unproven:"
    " clusters without this check (--set confirm=false)."
)

__all__ = ["TrainingConfig", "TrainingStoppedError", "train"]


def train(
    config: TrainingConfig,
    source: ContextSource,
    manifest: Manifest,
    folder: Path,
    *,
    device: str = "auto",
    devices: int | None = None,
    strategy: str = "auto",
    num_workers: int = 0,
    tensorboard: bool = True,
    progress: bool = False,
) -> Path:
    """Train, or resume a training that was stopped.

    The weights that are kept are the best on the validation set, which has the distribution of the
    training set; test images are not read. Where the manifest holds nothing out, the last weights
    are kept.

    Args:
        config: How to train.
        source: Where the images come from.
        manifest: Which image is in which set; a copy is kept in the folder.
        folder: The run folder; if it holds a stopped run of the same config and manifest, that run
            resumes.
        device: ``"cpu"``, ``"cuda"``, or ``"auto"`` for a GPU where there is one.
        devices: Devices on each node, with a process for each; by default one, or as many processes
            as torchrun or srun started. The first process alone writes to the folder. With 1, this
            process trains by itself, whatever started it.
        strategy: How processes share the model: ``"ddp"``, ``"fsdp"``, or ``"auto"`` for the first.
        num_workers: Processes that load images, for each device.
        tensorboard: Whether to log for TensorBoard, too, where it is installed.
        progress: Whether to show progress on standard error: a bar on a terminal, elsewhere one
            line per epoch.

    Returns:
        The run folder.

    Raises:
        ValueError: If an argument cannot be used, the folder holds another run, or training
            diverges.
        OSError: If the folder cannot be written to, another training works in it, or a process of
            this one was lost, one that trains or one that loads images.
        OtherProcessError: In the other processes, if the first one raises one of these alone.
        ImportError: If a package that the config asks for is not installed.
        TrainingStoppedError: After Ctrl-C or SIGTERM during the epochs; everything is saved.
    """
    processes = choose_devices(device, devices, strategy).processes
    check_sets(config, manifest)
    if config.batch_size % processes:  # before other processes are started
        raise ValueError(
            f"batch_size is {config.batch_size}, the images of a step over all {processes}"
            f" processes; give a multiple of {processes}."
        )
    fabric = make_fabric(device, devices, strategy, precision=config.precision)
    shows = progress and rank() == 0
    with report_lost_process(), ExitStack() as held:
        torch.manual_seed(config.seed)
        width = getattr(source, "num_features", 0)
        model = Classifier(config, len(manifest.classes), input_features=width)
        check_contexts(config, model.objective, manifest)
        settings = _settings(config, source, manifest, processes)
        _check_alike(settings)
        state = run_on_first(lambda: _open_folder(folder, settings, manifest, held))
        if state is not None and state["finished"]:
            return folder
        logits_of = None
        if reads_logits(config.infer_by):
            logits_of = partial(
                first_logits,
                config,
                source,
                manifest,
                fabric,
                num_workers=num_workers,
                shows=shows,
            )
        data = TrainingData(
            config,
            source,
            manifest,
            num_workers=num_workers,
            describe=describe_by(config, lambda: model.backbone, device),
            logits_of=logits_of,
            folder=folder,
        )
        if shows:
            _say_contexts(data)
        model.check_contexts(data.train_set.contexts)
        model.prepare(data.train_set.labels, data.train_set.contexts)
        monitor = SELECTIONS.get(config.select) if "validation" in manifest.set_names else None
        stop = held.enter_context(stop_signals())  # before this there is nothing to save
        loop = Loop(model, data.train_loader(fabric.device), fabric)
        keeper = RunKeeper(loop, folder, monitor=monitor, stop=stop)
        if state is not None:
            keeper.restore(state)
        del state  # as large as the model
        board = _Board(folder, logs=tensorboard and rank() == 0)
        held.callback(board.close)
        validation = data.validation_loader(fabric.device)
        try:
            _run(keeper, validation, _Teller(loop, shows), board)
        except OSError:
            check_folder(folder)  # without it another file fails first, and less clearly
            raise
    return folder


def _check_alike(settings: Mapping[str, Any]) -> None:
    """Raise unless all processes train with the same settings; all must call."""
    everyone = gather_objects(settings)
    for theirs in everyone:
        if theirs != everyone[0]:
            raise ValueError(
                f"the processes do not train alike: one has the settings {everyone[0]}, one"
                f" {theirs}."
            )


def _say_contexts(data: TrainingData) -> None:
    """Say which contexts were inferred, if any were to be."""
    if data.inferred is None:
        return
    _say(data.inferred.sentence)
    if data.inferred.number == 1:
        _say(WITHOUT_CONTEXTS)


class _Teller:
    """Says on standard error how a training goes: its pace, its time, and a line for each epoch.

    Args:
        loop: The training.
        shows: Whether anything is said.
    """

    def __init__(self, loop: Loop, shows: bool) -> None:
        self.loop = loop
        self.shows = shows
        self.console = Console(stderr=True) if shows else None
        self._first_step = loop.progress[0]
        self._began = time.monotonic()
        self._epoch_began = self._began
        self._has_told_time = False
        self._has_told_pace = loop.fabric.device.type != "cuda"

    def begin_epoch(self) -> None:
        """Begin to measure an epoch."""
        self._epoch_began = time.monotonic()

    def after_step(self) -> None:
        """Say once how long the whole takes."""
        seconds = time.monotonic() - self._began
        if not self.shows or self._has_told_time or seconds < ESTIMATE_AFTER:
            return
        self._has_told_time = True
        done, all_steps = self.loop.progress
        _say(_describe_time(seconds, done - self._first_step, all_steps))

    def after_epoch(self, row: Mapping[str, float]) -> None:
        """Say what was logged of an epoch and, once, how a GPU runs its steps."""
        if not self.shows:
            return
        if not self._has_told_pace:
            self._has_told_pace = True
            _say(self.loop.pace)
        seconds = time.monotonic() - self._epoch_began
        _say(_describe_epoch(row, self.loop.model.config.epochs, seconds))


def _run(
    keeper: RunKeeper, validation: DataLoader[Any] | None, teller: _Teller, board: _Board
) -> None:
    """Train what is left of a run, and keep it in its folder."""
    loop = keeper.loop
    with progress_bar("training", teller.console) as show:
        while not keeper.is_finished:
            keeper.before_epoch()
            teller.begin_epoch()
            for _ in loop.train_epoch():
                keeper.stop_if_asked()
                show(*loop.progress)
                teller.after_step()
            row = {"epoch": loop.epoch, "learning_rate": loop.learning_rate}
            figures = loop.validate(validation)
            row |= loop.end_epoch()
            row |= figures
            keeper.after_epoch(row)
            board.write(row, loop.epoch - 1)
            teller.after_epoch(row)
        keeper.finish()


class _Board:
    """TensorBoard's log in a run folder, begun when there is something to write.

    Args:
        folder: The run folder.
        logs: Whether anything is to be written, where TensorBoard is installed.
    """

    def __init__(self, folder: Path, *, logs: bool) -> None:
        self._folder = folder
        self._logs = logs and find_spec("tensorboard") is not None
        self._writer: Any = None

    def write(self, row: Mapping[str, float], epoch: int) -> None:
        """Write what was logged of an epoch."""
        if not self._logs:
            return
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(self._folder / "tensorboard")
        for name, value in row.items():
            self._writer.add_scalar(name, value, epoch)

    def close(self) -> None:
        """Write the last of it, unless the folder was removed."""
        if self._writer is not None and self._folder.exists():
            self._writer.close()


def _say(text: str) -> None:
    """Print a line on standard error, at once."""
    print(text, file=sys.stderr, flush=True)


def _describe_time(seconds: float, steps: int, all_steps: int) -> str:
    """Say how long the whole training takes, by its first steps, and how to make it shorter."""
    whole = seconds / steps * all_steps
    time_needed = f"{whole:.0f} s" if whole < 90 else f"{whole / 60:.0f} min"
    return (
        f"The whole training takes about {time_needed}. Shorter: a GPU, fewer --epochs, a smaller"
        " --image-size, --backbone small. Ctrl-C keeps what is done."
    )


def _describe_epoch(row: Mapping[str, float], epochs: int, seconds: float) -> str:
    shown = {
        "train_loss": "loss",
        "train_accuracy": "accuracy",
        "val_accuracy": "validation accuracy",
    }
    parts = [f"{words} {row[name]:.4f}" for name, words in shown.items() if name in row]
    return f"epoch {int(row['epoch']) + 1}/{epochs}: {', '.join(parts)} ({seconds:.1f} s)"


def _settings(
    config: TrainingConfig, source: ContextSource, manifest: Manifest, processes: int
) -> dict[str, Any]:
    """Return all that changes results, for the run folder."""
    model = ModelConfig(
        config.backbone,
        manifest.classes,
        config.image_size,
        config.small_stem,
        getattr(source, "num_features", 0),
        getattr(source, "network", ""),
        getattr(source, "fingerprint", ""),
    )
    settings: dict[str, Any] = {
        "model": model.to_dict(),
        "training": asdict(config),
        "split": manifest.sha256,
    }
    if config.weights is not None:
        settings["weights"] = hash_bytes(Path(config.weights).read_bytes())
    if processes > 1:  # each normalises its own part of a batch and draws its own augmentation
        settings["processes"] = processes
    return settings


def _open_folder(
    folder: Path, settings: Mapping[str, Any], manifest: Manifest, held: ExitStack
) -> dict[str, Any] | None:
    """Lock the run folder until ``held`` is closed; return the state of the training in it, None if
    there is none.
    """
    held.enter_context(claim(folder, "training", settings))
    manifest.save(folder / MANIFEST)
    state = read_state(folder)
    if state is not None and state["finished"]:
        write_metrics(folder, state["history"])
    return state
