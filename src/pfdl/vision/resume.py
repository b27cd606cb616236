"""Keep a training on disk, so that it survives Ctrl-C, a full disk and kill -9 and resumes to the
very same weights.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from pfdl._internal.files import write_atomically
from pfdl._internal.loading import checked_optimizer_state
from pfdl._internal.processes import anybody, gather_objects, rank, run_on_first
from pfdl._internal.state import load_state, save_state
from pfdl.runs import CONFIG, METRICS, set_aside
from pfdl.vision.checkpoint import WEIGHTS, check_weights, save_weights
from pfdl.vision.config import find_best_epoch
from pfdl.vision.loop import Loop

STATE = "resume.safetensors"
SAVE_EVERY = 30.0
"""Seconds. A kill costs at most so much; state and weights, hundreds of megabytes, would cost more
in short epochs.
"""


class TrainingStoppedError(KeyboardInterrupt):
    """Somebody asked the training to stop, by Ctrl-C or SIGTERM; all that it had done is saved."""


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set inside the block; a second signal has its usual
    effect.
    """
    asked = threading.Event()
    previous: dict[signal.Signals, Any] = {}

    def restore() -> None:
        while previous:
            signal.signal(*previous.popitem())

    def handle(number: int, frame: FrameType | None) -> None:
        asked.set()
        restore()

    if threading.current_thread() is threading.main_thread():  # elsewhere Python refuses handlers
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, handle)
    try:
        yield asked
    finally:
        restore()


def read_state(folder: Path) -> dict[str, Any] | None:
    """Read the state that a training was saved in, None if there is none.

    A damaged one is set aside; so is one whose best weights are damaged, because it cannot lead to
    them again.
    """
    path = folder / STATE
    weights = folder / WEIGHTS
    if not path.exists():
        return None
    damaged = path
    try:
        state = load_state(path)
        parts = {"finished", "history"}
        if state.get("finished") is not True:
            parts |= {"epoch", "batch", "means", "module", "optimizer"}
        is_whole = parts <= set(state) and isinstance(state["finished"], bool)
        if not is_whole or not _is_history(state["history"]):
            raise ValueError(
                f"{path} is not a whole training state (a part is missing or of another kind)."
            )
        if state["history"]:
            damaged = weights
            check_weights(weights)
    except (FileNotFoundError, ValueError) as error:
        for useless in {damaged, path}:
            if useless.exists():
                set_aside(useless, error, "training starts again")
        return None
    return state


def _is_history(history: object) -> bool:
    """Return whether something is rows of numbers, one for each epoch."""
    if not isinstance(history, list) or not all(isinstance(row, dict) for row in history):
        return False
    for number, row in enumerate(history):
        kinds = {(type(name), type(value)) for name, value in row.items()}
        if row.get("epoch") != number or not kinds <= {(str, int), (str, float)}:
            return False
    return True


def check_folder(folder: Path) -> None:
    """Raise FileNotFoundError if a run folder was removed while its training ran."""
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(
            f"the run folder {folder} was removed or emptied while its training ran, so nothing"
            " more can be saved there; start the command again."
        )


def write_metrics(folder: Path, history: list[dict[str, float]]) -> None:
    """Write what was logged, one line per epoch."""
    write_atomically(folder / METRICS, pd.DataFrame(history).to_csv(index=False))


class RunKeeper:
    """Keep a training in its run folder: its state, its best weights and a table of what was
    logged.

    The state is complete: the model with its objective, the optimiser, the running means, the table
    so far; the learning rate and all that is random follow from the epoch and the step. After
    Ctrl-C or SIGTERM the current step is finished, saved, and :class:`TrainingStoppedError` raised.

    The table is written after each epoch. State, weights and table are written together, at the end
    and when ``SAVE_EVERY`` seconds have passed at the start of an epoch; until then the best
    weights are kept as a copy in memory. The state is written last, so that the weights in the
    folder are never older than what it tells of: a training that is killed in between repeats the
    epochs after the state and comes to the same weights. At the end the table is all that is left
    of the state, which is large and of no more use.

    Of several processes the first alone reads and writes the folder, and tells the others. They
    save together and stop together, whichever of them was asked to.

    Args:
        loop: The training; the weights of its backbone are the product.
        folder: Where ``resume.safetensors``, ``model.safetensors`` (the weights) and
            ``metrics.csv`` go.
        monitor: The logged number whose highest value marks the best weights, see
            :func:`pfdl.vision.config.find_best_epoch`; with None the last weights are kept.
        stop: Set by whoever wants the training to stop.

    Attributes:
        history: One row for each epoch that ended.
    """

    def __init__(
        self, loop: Loop, folder: Path, *, monitor: str | None, stop: threading.Event
    ) -> None:
        self.loop = loop
        self.folder = folder
        self.monitor = monitor
        self.stop = stop
        self.history: list[dict[str, float]] = []
        self._best_weights: dict[str, Tensor] = {}
        self._weights_are_saved = True
        self._saved_at = time.monotonic()

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from a saved state; ValueError if it is that of another training."""
        loop = self.loop
        epochs = self.loop.model.config.epochs
        try:
            epoch = state["epoch"]
            step = state["batch"]
            history = state["history"]
            if type(epoch) is not int or not 0 <= epoch < epochs or epoch != len(history):
                raise ValueError(f"its epoch is {epoch!r}, after {len(history)} of {epochs} epochs")
            if type(step) is not int or not 0 <= step <= len(loop.batches):
                raise ValueError(f"its batch is {step!r}, and an epoch has {len(loop.batches)}")
            loop.model.means.load_state_dict(state["means"][rank()])
            load_module(loop.model, state["module"])
            load_optimizer(loop.optimizer, state["optimizer"])
        except Exception as error:  # whatever its parts stumble over
            raise ValueError(
                f"{self.folder / STATE} is not a state of this training ({error}); remove it to"
                " start again."
            ) from error
        self.history = history
        loop.epoch = epoch
        loop.step = step

    @property
    def is_finished(self) -> bool:
        """Whether all epochs are done, or so many without a better score as the config has patience
        for.
        """
        config = self.loop.model.config
        is_stalled = config.patience is not None and self._epochs_since_best() >= config.patience
        return self.loop.epoch >= config.epochs or is_stalled

    def before_epoch(self) -> None:
        """Save if the last time was long ago, or stop if asked to."""
        is_late = rank() == 0 and time.monotonic() - self._saved_at >= SAVE_EVERY
        if self.loop.epoch > 0 and self.loop.step == 0:
            self.stop_if_asked()
            if anybody(is_late):
                self._save()

    def stop_if_asked(self) -> None:
        """Save and stop, between two steps, if asked to."""
        if anybody(self.stop.is_set()):
            self._save()
            raise TrainingStoppedError(
                f"Stopped in epoch {self.loop.epoch + 1}. All of it is saved in {self.folder}; "
                "the same command resumes it."
            )

    def after_epoch(self, row: dict[str, float]) -> None:
        """Copy the weights if they are the best so far, and write down what was logged."""
        for name in ("train_loss", "val_loss"):
            if not math.isfinite(row.get(name, 0.0)):
                run_on_first(self._write_product)
                raise ValueError(
                    f"training diverged in epoch {int(row['epoch']) + 1}: {name} is {row[name]};"
                    " try a smaller learning rate."
                )
        self.history.append(row)
        if self.monitor is None or (self.monitor in row and self._epochs_since_best() == 0):
            weights = gather_sharded(self.loop.model.backbone.state_dict())
            if rank() == 0:
                self._best_weights = {name: value.clone() for name, value in weights.items()}
                self._weights_are_saved = False
        run_on_first(lambda: write_metrics(self.folder, self.history))

    def finish(self) -> None:
        """Save the end, from which nothing is left to do."""
        run_on_first(lambda: self._write({"finished": True, "history": self.history}))

    def _epochs_since_best(self) -> int:
        best = find_best_epoch(self.history, self.monitor or "")
        return 0 if best is None else len(self.history) - 1 - best

    def _save(self) -> None:
        state = {
            "epoch": self.loop.epoch,
            "batch": self.loop.step,
            "finished": False,
            "history": self.history,
            "means": gather_objects(self.loop.model.means.state_dict()),
            "module": gather_sharded(self.loop.model.state_dict()),
            "optimizer": gather_sharded(self.loop.optimizer.state_dict()),
        }
        run_on_first(lambda: self._write(state))
        self._saved_at = time.monotonic()

    def _write(self, state: Mapping[str, Any]) -> None:
        self._write_product()
        save_state(self.folder / STATE, state)

    def _write_product(self) -> None:
        """Write the table and the best weights."""
        check_folder(self.folder)
        if self.history:
            write_metrics(self.folder, self.history)
        if not self._weights_are_saved:
            save_weights(self.folder, self._best_weights)
            self._weights_are_saved = True


def gather_sharded(state: Any) -> Any:
    """Return a state in which the first process has whole tensors on the CPU where it held parts;
    all must call.
    """
    if isinstance(state, DTensor):
        full = state.full_tensor()
        return full.cpu() if rank() == 0 else None
    if isinstance(state, Mapping):
        return {name: gather_sharded(value) for name, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(gather_sharded(value) for value in state)
    return state


def load_module(module: nn.Module, state: Mapping[str, Any]) -> None:
    """Load a whole state into a module, of which each process takes its part."""
    own = module.state_dict()
    module.load_state_dict({name: _part_of(value, own.get(name)) for name, value in state.items()})


def load_optimizer(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Load a whole state into an optimiser, of which each process takes its part; all must call.

    Raises:
        ValueError: If the state does not fit; the optimiser is unchanged then.
    """
    checked = checked_optimizer_state(optimizer, state)
    parameters = list(chain.from_iterable(group["params"] for group in optimizer.param_groups))
    for number, moments in checked["state"].items():
        own = parameters[number]
        for name, value in moments.items():
            # A count of steps is not divided
            if isinstance(value, Tensor) and value.shape == own.shape:
                moments[name] = _part_of(value, own)
    optimizer.load_state_dict(checked)


def _part_of(value: Any, own: object) -> Any:
    if isinstance(own, DTensor) and isinstance(value, Tensor):
        return distribute_tensor(value.to(own.device), own.device_mesh, own.placements)
    return value
