"""Keeps a run on disk so that it survives Ctrl-C, a full disk and kill -9, and goes on to the very same weights."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from pfdl._internal.files import write_atomically
from pfdl._internal.runs import set_aside
from pfdl._internal.state import load_state, save_state
from pfdl.vision.checkpoint import WEIGHTS, check_weights, save_weights

STATE = "resume.safetensors"
METRICS = "metrics.csv"
SUMMARY = ("finished", "history", "best_score")
TO_GO_ON = ("epoch", "batch", "steps", "means", "module", "optimizers", "schedules", "callbacks")
SAVE_EVERY = 30.0
"""Seconds. A kill costs at most so much; a state of hundreds of megabytes after every short epoch would cost more."""


class TrainingStoppedError(Exception):
    """Somebody asked the run to stop; all it had done is saved."""


def read_state(folder: Path) -> dict[str, Any] | None:
    """The state that a run was saved in, None if there is none.

    A damaged one is set aside; so is one whose best weights are damaged, because it cannot lead to them again.

    Args:
        folder: The run folder.
    """
    path, weights = folder / STATE, folder / WEIGHTS
    if not path.exists():
        return None
    try:
        state = load_state(path)
        wanted = SUMMARY if state.get("finished") is True else (*SUMMARY, *TO_GO_ON)
        if missing := [name for name in wanted if name not in state]:
            raise ValueError(f"{path} is not a whole training state (it lacks {', '.join(missing)}).")
        if not isinstance(state["finished"], bool) or not isinstance(state["history"], list):
            raise ValueError(f"{path} is not a whole training state (its parts are of other kinds).")
    except ValueError as error:
        set_aside(path, error, "training starts anew")
        return None
    if state["history"]:
        try:
            check_weights(weights)
        except (OSError, ValueError) as error:
            if weights.exists():
                set_aside(weights, error, "training starts anew")
            set_aside(path, f"{path} goes on to weights that are lost.", "training starts anew")
            return None
    return state


def shed_state(folder: Path) -> None:
    """Of a finished run's state keep only that it is finished: the rest is the largest file, and of no more use."""
    state = read_state(folder)
    if state is not None and state["finished"] and len(state) > len(SUMMARY):
        save_state(folder / STATE, {name: state[name] for name in SUMMARY})


def write_metrics(folder: Path, history: list[dict[str, float]]) -> None:
    """Write what was logged, one line per epoch."""
    write_atomically(folder / METRICS, pd.DataFrame(history).to_csv(index=False))


class RunKeeper(Callback):
    """Saves the state when epochs end and when asked to stop, the best weights, and a table of what was logged.

    What a step draws at random follows from the seed, the epoch and the step alone, so a run that goes on from a saved
    state draws what it would have drawn. The state is complete: the module with its objective, optimisers, schedules,
    other callbacks, the table so far. After Ctrl-C or SIGTERM the step in work is finished, saved, and
    :class:`TrainingStoppedError` raised; a second Ctrl-C stops at once.

    Args:
        model: The part of the module whose weights are the product.
        folder: Where ``resume.safetensors``, ``model.safetensors`` (the model's weights) and ``metrics.csv`` go.
        seed: Of all that training draws.
        monitor: The logged number whose highest value marks the best weights; with None the last ones are kept.
    """

    def __init__(self, model: nn.Module, folder: Path, *, seed: int, monitor: str | None) -> None:
        self.model = model
        self.folder = folder
        self.seed = seed
        self.monitor = monitor
        self._saved_at = time.monotonic()
        self.best_score: float | None = None
        self.history: list[dict[str, float]] = []
        self._learning_rate = 0.0
        self._first_epoch = 0
        self._means: dict[str, Any] = {}
        self._asked_to_stop = False
        self._handlers: dict[signal.Signals, Any] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go on from the saved state, if there is one."""
        state = read_state(self.folder)
        if state is not None:
            try:
                self._restore(trainer, pl_module, state)
            except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{self.folder / STATE} is the state of another training ({error}); remove it to start anew."
                ) from error
        self._listen()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save: here everything that belongs to the epoch before is done, schedules and validation included."""
        due = self._asked_to_stop or time.monotonic() - self._saved_at >= SAVE_EVERY
        if trainer.current_epoch > self._first_epoch and due:
            self._save(trainer, pl_module, trainer.current_epoch, batch=0)
            self._stop_if_asked(trainer)
        self._learning_rate = float(trainer.optimizers[0].param_groups[0]["lr"])  # at its end it is the next epoch's

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Fix what this step will draw."""
        place = (self.seed, trainer.current_epoch, batch_idx)
        torch.manual_seed(int(np.random.SeedSequence(place).generate_state(1)[0]))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save in the middle of an epoch if somebody wants to stop."""
        self._add_means(trainer)
        if self._asked_to_stop:
            self._save(trainer, pl_module, trainer.current_epoch, batch=batch_idx + 1)
            self._stop_if_asked(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the weights if they are the best so far, and write down what was logged."""
        logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
        score = logged.get(self.monitor) if self.monitor is not None else None
        if self.monitor is None or (score is not None and (self.best_score is None or score > self.best_score)):
            self.best_score = score
            # Before the state: killed in between, the epoch is done again and writes the same weights.
            save_weights(self.folder / WEIGHTS, self.model)
        self.history.append({"epoch": trainer.current_epoch, "learning_rate": self._learning_rate, **logged})
        write_metrics(self.folder, self.history)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the end, from which nothing is left to do."""
        self._save(trainer, pl_module, trainer.current_epoch, batch=0, finished=True)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Give Ctrl-C back to whom it belonged."""
        self._stop_listening()

    def _save(
        self, trainer: Trainer, pl_module: LightningModule, epoch: int, *, batch: int, finished: bool = False
    ) -> None:
        others = [callback for callback in _of(trainer, "callbacks") if callback is not self and callback.state_dict()]
        state = {
            "epoch": epoch,
            "batch": batch,
            "finished": finished,
            "best_score": self.best_score,
            "history": self.history,
            "means": _sums(trainer) if batch else {},
            "module": pl_module.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in trainer.optimizers],
            "schedules": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
            "callbacks": {callback.state_key: callback.state_dict() for callback in others},
            "steps": trainer.global_step - batch,  # at the epoch's start
        }
        save_state(self.folder / STATE, state)
        self._saved_at = time.monotonic()

    def _restore(self, trainer: Trainer, pl_module: LightningModule, state: dict[str, Any]) -> None:
        self.best_score, self.history = state["best_score"], state["history"]
        pl_module.load_state_dict(state["module"])
        for optimizer, saved in zip(trainer.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        for config, saved in zip(trainer.lr_scheduler_configs, state["schedules"], strict=True):
            config.scheduler.load_state_dict(saved)
        for callback in _of(trainer, "callbacks"):
            if callback.state_key in state["callbacks"]:
                callback.load_state_dict(state["callbacks"][callback.state_key])
        # Lightning's own restart of loops skips hooks and schedules at the edges of an epoch; ours starts the epoch.
        loop = trainer.fit_loop
        progress: Any = loop.epoch_progress.current
        progress.ready = progress.started = progress.processed = progress.completed = state["epoch"]
        loop.epoch_loop._batches_that_stepped = state["steps"]
        loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total.completed = state["steps"]
        self._first_epoch, self._means = state["epoch"], state["means"]
        if state["batch"]:
            _pass_over(pl_module, state["batch"])

    def _add_means(self, trainer: Trainer) -> None:
        """Let the epoch's means be over all its batches, those before the stop too."""
        for name, metric in _mean_metrics(trainer):
            if name in self._means:
                value, count = self._means.pop(name)
                metric.value = value.to(metric.value) + metric.value
                metric.cumulated_batch_size = count.to(metric.cumulated_batch_size) + metric.cumulated_batch_size

    def _listen(self) -> None:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python refuses handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._ask_to_stop)

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        self._asked_to_stop = True
        self._stop_listening()  # whoever asks a second time is not made to wait

    def _stop_listening(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def _stop_if_asked(self, trainer: Trainer) -> None:
        if self._asked_to_stop:
            raise TrainingStoppedError(
                f"Stopped in epoch {trainer.current_epoch + 1}. All of it is saved in {self.folder}; "
                "the same command goes on from there."
            )


def _of(trainer: Trainer, name: str) -> list[Any]:
    """An attribute whose type Lightning does not tell."""
    values: list[Any] = getattr(trainer, name)
    return values


def _mean_metrics(trainer: Trainer) -> list[tuple[str, Any]]:
    """What is averaged over the batches of this epoch, with the sums so far."""
    results: Any = trainer._results
    items = [] if results is None else results.valid_items()
    return [(name, metric) for name, metric in items if metric.is_tensor and metric.meta.is_mean_reduction]


def _sums(trainer: Trainer) -> dict[str, Any]:
    return {name: (metric.value, metric.cumulated_batch_size) for name, metric in _mean_metrics(trainer)}


def _pass_over(pl_module: LightningModule, batches: int) -> None:
    """Let the first batches of the epoch go by untrained, because they were trained before the stop.

    To a trainer a step without a loss is one to skip; the gradients are None then, and no optimiser moves.
    """
    original = pl_module.training_step
    left = batches

    def training_step(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        if left == 0:
            return original(*args, **kwargs)
        left -= 1
        return None

    pl_module.training_step = training_step  # type: ignore[method-assign]
