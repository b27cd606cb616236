"""Keep a training on disk, so that it survives Ctrl-C, a full disk and kill -9 and resumes to the very same weights."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pfdl._internal.files import write_atomically
from pfdl._internal.processes import anybody, gather_objects, rank, run_on_first
from pfdl._internal.runs import CONFIG, METRICS, set_aside
from pfdl._internal.state import load_state, save_state
from pfdl.vision.checkpoint import WEIGHTS, check_weights, save_weights
from pfdl.vision.config import find_best_epoch
from pfdl.vision.loop import Loop
from pfdl.vision.sharding import load_module, load_optimizer, whole
from pfdl.vision.stopping import StopRequest, TrainingStoppedError

STATE = "resume.safetensors"
SUMMARY = ("finished", "history", "best_score")
TO_RESUME = ("epoch", "batch", "means", "module", "optimizer")
TABLE_EVERY = 5.0
"""Seconds. To write even a small file takes ten milliseconds until a disk has it, which is much in short epochs."""

SAVE_EVERY = 30.0
"""Seconds. A kill costs at most so much; state and weights, hundreds of megabytes, would cost more in short epochs."""


def read_state(folder: Path) -> dict[str, Any] | None:
    """Read the state that a training was saved in, None if there is none.

    A damaged one is set aside; so is one whose best weights are damaged, because it cannot lead to them again.

    Args:
        folder: The run folder.
    """
    path, weights = folder / STATE, folder / WEIGHTS
    if not path.exists():
        return None
    try:
        state = load_state(path)
        wanted = SUMMARY if state.get("finished") is True else (*SUMMARY, *TO_RESUME)
        if missing := [name for name in wanted if name not in state]:
            raise ValueError(f"{path} is not a whole training state (it lacks {', '.join(missing)}).")
        _check_summary(path, state)
    except ValueError as error:
        set_aside(path, error, "training starts again")
        return None
    if state["history"]:
        try:
            check_weights(weights)
        except (OSError, ValueError) as error:
            if weights.exists():
                set_aside(weights, error, "training starts again")
            set_aside(path, f"{path} leads to weights that are lost.", "training starts again")
            return None
    return state


def _check_summary(path: Path, state: Mapping[str, Any]) -> None:
    """Raise unless the parts that every state has are of the right kind."""
    history = state["history"]
    sound = (
        isinstance(state["finished"], bool)
        and (state["best_score"] is None or _is_number(state["best_score"]))
        and isinstance(history, list)
        and all(isinstance(row, dict) for row in history)
        and all(isinstance(name, str) and _is_number(value) for row in history for name, value in row.items())
        and all(row.get("epoch") == number for number, row in enumerate(history))  # numbers by now, and no tensors
    )
    if not sound:
        raise ValueError(f"{path} is not a whole training state (its parts are of other kinds).")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def shed_state(folder: Path) -> None:
    """Keep of a finished training's state only that it is finished; the rest is large and of no more use."""
    state = read_state(folder)
    if state is not None and state["finished"] and len(state) > len(SUMMARY):
        save_state(folder / STATE, {name: state[name] for name in SUMMARY})


def check_folder(folder: Path) -> None:
    """Raise FileNotFoundError if a run folder was removed while its training ran."""
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(
            f"the run folder {folder} was removed or emptied while its training ran, so nothing more can be saved "
            "there; start the command again."
        )


def write_metrics(folder: Path, history: list[dict[str, float]]) -> None:
    """Write what was logged, one line per epoch."""
    table = io.StringIO()
    names = dict.fromkeys(name for row in history for name in row)
    writer = csv.DictWriter(table, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    write_atomically(folder / METRICS, table.getvalue())


class RunKeeper:
    """Keep a training in its run folder: its state, its best weights and a table of what was logged.

    The state is complete: the model with its objective, the optimiser, the running means, the table so far; the
    learning rate and all that is random follow from the epoch and the step. After Ctrl-C or SIGTERM the current step is
    finished, saved, and :class:`TrainingStoppedError` raised.

    The table is written after an epoch if ``TABLE_EVERY`` seconds have passed. State, weights and table are written
    together, at the end and when ``SAVE_EVERY`` seconds have passed at the start of an epoch; until then the best
    weights are kept as a copy in memory. The state is written last, so that the weights in the folder are never older
    than what it tells of: a training that is killed in between repeats the epochs after the state and comes to the same
    weights.

    Of several processes the first alone reads and writes the folder, and tells the others. They save together and stop
    together, whichever of them was asked to.

    Args:
        loop: The training; the weights of its backbone are the product.
        folder: Where ``resume.safetensors``, ``model.safetensors`` (the weights) and ``metrics.csv`` go.
        monitor: The logged number whose highest value marks the best weights, see
            :func:`pfdl.vision.config.find_best_epoch`; with None the last weights are kept.
        stop: What listens for signals.

    Attributes:
        history: One row for each epoch that ended.
    """

    def __init__(self, loop: Loop, folder: Path, *, monitor: str | None, stop: StopRequest) -> None:
        self.loop = loop
        self.folder = folder
        self.monitor = monitor
        self.stop = stop
        self.best_score: float | None = None
        self.history: list[dict[str, float]] = []
        self._best_weights: dict[str, Tensor] = {}
        self._weights_are_saved = True
        self._saved_at = time.monotonic()
        self._table_at = -math.inf

    def restore(self) -> None:
        """Resume from the saved state, if there is one; from here on a signal waits until all is saved."""
        state = run_on_first(lambda: read_state(self.folder))
        if state is not None:
            try:
                self._load(state)
            except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{self.folder / STATE} is not a state of this training ({error}); remove it to start again."
                ) from error
        self.stop.deferred = True

    @property
    def is_finished(self) -> bool:
        """Whether all epochs are done, or so many without a better score as the config has patience for."""
        config = self.loop.model.config
        is_stalled = config.patience is not None and self._epochs_since_best() >= config.patience
        return self.loop.epoch >= config.epochs or is_stalled

    def before_epoch(self) -> None:
        """Save if the last time was long ago, or if somebody wants to stop."""
        is_late = rank() == 0 and time.monotonic() - self._saved_at >= SAVE_EVERY
        stops = anybody(self.stop.requested)
        if self.loop.epoch > 0 and self.loop.step == 0 and (stops or anybody(is_late)):
            self._save()
            self._stop_if(stops)

    def after_step(self) -> None:
        """Save in the middle of an epoch if somebody wants to stop."""
        if anybody(self.stop.requested):
            self._save()
            self._stop_if(True)

    def after_epoch(self, row: dict[str, float]) -> None:
        """Copy the weights if they are the best so far, and write down what was logged."""
        if wrong := [name for name in ("train_loss", "val_loss") if not math.isfinite(row.get(name, 0.0))]:
            run_on_first(self._write_product)
            raise ValueError(
                f"training diverged in epoch {int(row['epoch']) + 1}: {wrong[0]} is {row[wrong[0]]}; try a smaller "
                "learning rate."
            )
        self.history.append(row)
        if self.monitor is None or (self.monitor in row and self._epochs_since_best() == 0):
            self.best_score = row.get(self.monitor) if self.monitor is not None else None
            self._keep(whole(self.loop.model.backbone.state_dict()))
        run_on_first(self._write_epoch)

    def finish(self) -> None:
        """Save the end, from which nothing is left to do."""
        self._save(finished=True)

    def _keep(self, weights: Mapping[str, Tensor]) -> None:
        """Copy the weights, in the first process, always to the same memory: to ask for new memory takes as long."""
        if rank() == 0:
            if not self._best_weights:
                self._best_weights = {name: torch.empty_like(value) for name, value in weights.items()}
            for name, value in weights.items():
                self._best_weights[name].copy_(value)
            self._weights_are_saved = False

    def _write_epoch(self) -> None:
        check_folder(self.folder)  # before a logger writes to it, less clearly
        if time.monotonic() - self._table_at >= TABLE_EVERY:
            self._write_table()

    def _write_table(self) -> None:
        if self.history:
            write_metrics(self.folder, self.history)
            self._table_at = time.monotonic()

    def _write_product(self) -> None:
        check_folder(self.folder)
        self._write_table()
        if not self._weights_are_saved:
            save_weights(self.folder / WEIGHTS, self._best_weights)
            self._weights_are_saved = True

    def _epochs_since_best(self) -> int:
        best = find_best_epoch(self.history, self.monitor or "")
        return 0 if best is None else len(self.history) - 1 - best

    def _save(self, *, finished: bool = False) -> None:
        means = gather_objects(self.loop.model.means.state_dict())
        state = {
            "epoch": self.loop.epoch,
            "batch": self.loop.step,
            "finished": finished,
            "best_score": self.best_score,
            "history": self.history,
            **{_means_of(number): one for number, one in enumerate(means)},
            "module": whole(self.loop.model.state_dict()),
            "optimizer": whole(self.loop.optimizer.state_dict()),
        }
        run_on_first(lambda: self._write_state(state))
        self._saved_at = time.monotonic()

    def _write_state(self, state: Mapping[str, Any]) -> None:
        self._write_product()
        save_state(self.folder / STATE, state)

    def _load(self, state: dict[str, Any]) -> None:
        loop, epochs = self.loop, self.loop.model.config.epochs
        epoch, step, history = state["epoch"], state["batch"], state["history"]
        if type(epoch) is not int or not 0 <= epoch < epochs or epoch != len(history):
            raise ValueError(f"its epoch is {epoch!r}, after {len(history)} of {epochs} epochs")
        if type(step) is not int or not 0 <= step <= len(loop.batches):
            raise ValueError(f"its batch is {step!r}, and an epoch has {len(loop.batches)}")
        loop.model.means.load_state_dict(state[_means_of(rank())])
        load_module(loop.model, state["module"])
        load_optimizer(loop.optimizer, state["optimizer"])
        self.best_score, self.history = state["best_score"], history
        loop.epoch, loop.step = epoch, step

    def _stop_if(self, requested: bool) -> None:
        if requested:
            raise TrainingStoppedError(
                f"Stopped in epoch {self.loop.epoch + 1}. All of it is saved in {self.folder}; "
                "the same command resumes it."
            )


def _means_of(process: int) -> str:
    """Return the name under which a state has the running means of a process."""
    return f"means.{process}" if process else "means"
