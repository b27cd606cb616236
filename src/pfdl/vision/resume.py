"""Keep a training on disk, so that it survives Ctrl-C, a full disk and kill -9 and resumes to the very same weights."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from torch import Tensor

from pfdl._internal.files import write_atomically
from pfdl._internal.processes import anybody, from_first, gather_objects, rank
from pfdl._internal.runs import CONFIG, METRICS, set_aside
from pfdl._internal.state import load_state, save_state
from pfdl.vision.checkpoint import WEIGHTS, check_weights, save_weights
from pfdl.vision.classifier import ImageClassifier
from pfdl.vision.loading import ResumableLoader
from pfdl.vision.metrics import TIE_BREAKERS
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


class ResumeCallback(Checkpoint):
    """Save the state and the best weights when epochs end and on a request to stop, and a table of what was logged.

    What a step draws at random follows from the seed, the epoch and the step alone, so a training that resumes from a
    saved state draws what it would have drawn. The state is complete: the module with its objective, the optimiser, the
    running means, the table so far; the learning rate follows from the epoch. After Ctrl-C or SIGTERM the current step
    is finished, saved, and :class:`TrainingStoppedError` raised.

    The table is written after an epoch if ``TABLE_EVERY`` seconds have passed. State, weights and table are written
    together, at the end and when ``SAVE_EVERY`` seconds have passed at the start of an epoch; until then the best
    weights are kept as a copy in memory. The state is written last, so that the weights in the folder are never older
    than what it tells of: a training that is killed in between repeats the epochs after the state and comes to the same
    weights.

    Of several processes the first alone reads and writes the folder, and tells the others. They save together and stop
    together, whichever of them was asked to.

    The trainer must load its training batches with a :class:`pfdl.vision.loading.ResumableLoader`. A Lightning
    ``Checkpoint``, because those run last, when the module has logged its epoch.

    Args:
        model: The module that is trained; its backbone's weights are the product.
        folder: Where ``resume.safetensors``, ``model.safetensors`` (the weights) and ``metrics.csv`` go.
        seed: Of all that training draws.
        monitor: The logged number whose highest value marks the best weights, see ``TIE_BREAKERS`` for equal ones; with
            None the last weights are kept.
        patience: Stop when so many epochs have not improved the monitored number; None never does.
        stop: What listens for signals.
        report: Called with the row of each epoch that ends, and the number of seconds it took.
    """

    def __init__(
        self,
        model: ImageClassifier,
        folder: Path,
        *,
        seed: int,
        monitor: str | None,
        patience: int | None = None,
        stop: StopRequest | None = None,
        report: Callable[[Mapping[str, float], float], None] | None = None,
    ) -> None:
        self.model = model
        self.folder = folder
        self.seed = seed
        self.monitor = monitor
        self.patience = patience
        self.stop = stop or StopRequest()
        self.report = report
        self.best_score: float | None = None
        self.history: list[dict[str, float]] = []
        self._best_weights: dict[str, Tensor] = {}
        self._weights_are_saved = True
        self._saved_at = self._epoch_began = time.monotonic()
        self._table_at = -math.inf
        self._learning_rate = 0.0
        self._seeds: list[int] = []
        self._first_epoch = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Resume from the saved state, if there is one."""
        state = from_first(lambda: read_state(self.folder))
        if state is not None:
            try:
                self._restore(trainer, state)
            except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{self.folder / STATE} is not a state of this training ({error}); remove it to start again."
                ) from error
        self.stop.defer()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save: here everything that belongs to the epoch before is done, the schedule and validation included."""
        is_late = rank() == 0 and time.monotonic() - self._saved_at >= SAVE_EVERY
        stops = anybody(self.stop.requested)
        if trainer.current_epoch > self._first_epoch and (stops or anybody(is_late)):
            self._save(trainer, trainer.current_epoch, batch=0)
            self._stop_if(stops, trainer)
        self._learning_rate = float(trainer.optimizers[0].param_groups[0]["lr"])  # at its end it is the next epoch's
        place = [self.seed, trainer.current_epoch]
        if rank():  # each process draws its own; the first draws what a single one would
            place.append(rank())
        self._seeds = np.random.SeedSequence(place).generate_state(len(_loader(trainer))).tolist()
        self._epoch_began = time.monotonic()

    def before_step(self, batch: int) -> None:
        """Fix what the step on this batch of the epoch will draw."""
        number = self._seeds[batch]
        torch.default_generator.manual_seed(number)  # torch.manual_seed visits every kind of device: 0.3 ms a step
        if self.model.device.type == "cuda":
            torch.cuda.manual_seed(number)

    def after_step(self, batch: int) -> None:
        """Save in the middle of an epoch if somebody wants to stop."""
        if anybody(self.stop.requested):
            trainer = self.model.trainer
            self._save(trainer, trainer.current_epoch, batch=batch + 1)
            self._stop_if(True, trainer)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop with a sentence if the folder is gone, before a logger writes to it from a thread of its own."""
        from_first(lambda: check_folder(self.folder))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Copy the weights if they are the best so far, and write down what was logged."""
        _loader(trainer).first_batch = 0
        logged = {name: float(value) for name, value in trainer.callback_metrics.items() if name != "step"}
        if wrong := [name for name in ("train_loss", "val_loss") if not math.isfinite(logged.get(name, 0.0))]:
            from_first(self._write_product)
            raise ValueError(
                f"training diverged in epoch {trainer.current_epoch + 1}: {wrong[0]} is {logged[wrong[0]]}; try a "
                "smaller learning rate."
            )
        self.history.append({"epoch": trainer.current_epoch, "learning_rate": self._learning_rate, **logged})
        if self.monitor is None or (self.monitor in logged and self._epochs_since_best() == 0):
            self.best_score = logged.get(self.monitor) if self.monitor is not None else None
            self._keep(whole(self.model.backbone.state_dict()))
        from_first(self._write_epoch)
        if self.patience is not None and self._epochs_since_best() >= self.patience:
            trainer.should_stop = True
        if self.report is not None:
            self.report(self.history[-1], time.monotonic() - self._epoch_began)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the end, from which nothing is left to do."""
        self._save(trainer, trainer.current_epoch, batch=0, finished=True)

    def _keep(self, weights: Mapping[str, Tensor]) -> None:
        """Copy the weights, in the first process, always to the same memory: to ask for new memory takes as long."""
        if rank() == 0:
            if not self._best_weights:
                self._best_weights = {name: torch.empty_like(value) for name, value in weights.items()}
            for name, value in weights.items():
                self._best_weights[name].copy_(value)
            self._weights_are_saved = False

    def _write_epoch(self) -> None:
        check_folder(self.folder)
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
        tie_breaker = TIE_BREAKERS.get(self.monitor or "", "")
        scores = [
            (row[self.monitor], row.get(tie_breaker, 0.0))
            for row in self.history
            if self.monitor and self.monitor in row
        ]
        return len(scores) - 1 - scores.index(max(scores)) if scores else 0

    def _save(self, trainer: Trainer, epoch: int, *, batch: int, finished: bool = False) -> None:
        means = gather_objects(self.model.means.state_dict())
        state = {
            "epoch": epoch,
            "batch": batch,
            "finished": finished,
            "best_score": self.best_score,
            "history": self.history,
            **{_means_of(number): one for number, one in enumerate(means)},
            "module": whole(self.model.state_dict()),
            "optimizer": whole(trainer.optimizers[0].state_dict()),
        }
        from_first(lambda: self._write_state(state))
        self._saved_at = time.monotonic()

    def _write_state(self, state: Mapping[str, Any]) -> None:
        self._write_product()
        save_state(self.folder / STATE, state)

    def _restore(self, trainer: Trainer, state: dict[str, Any]) -> None:
        loader = _loader(trainer)
        epoch, batch = state["epoch"], state["batch"]
        if type(epoch) is not int or not 0 <= epoch < (trainer.max_epochs or 1) or epoch != len(state["history"]):
            raise ValueError(f"its epoch is {epoch!r}, after {len(state['history'])} of {trainer.max_epochs} epochs")
        if type(batch) is not int or not 0 <= batch <= len(loader):
            raise ValueError(f"its batch is {batch!r}, and an epoch has {len(loader)}")
        self.model.means.load_state_dict(state[_means_of(rank())])
        load_module(self.model, state["module"])
        (optimizer,) = trainer.optimizers
        load_optimizer(optimizer, state["optimizer"])
        self.best_score, self.history = state["best_score"], state["history"]
        for config in trainer.lr_scheduler_configs:
            scheduler = cast(torch.optim.lr_scheduler.LambdaLR, config.scheduler)
            scheduler.last_epoch = epoch
            for group, rate, decay in zip(
                optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
            ):
                group["lr"] = rate * decay(epoch)
        # Lightning's own restart skips hooks at the edges of an epoch; this one starts the epoch and skips its batches.
        progress: Any = trainer.fit_loop.epoch_progress.current
        progress.ready = progress.started = progress.processed = progress.completed = epoch
        loader.first_batch, self._first_epoch = batch, epoch

    def _stop_if(self, requested: bool, trainer: Trainer) -> None:
        if requested:
            raise TrainingStoppedError(
                f"Stopped in epoch {trainer.current_epoch + 1}. All of it is saved in {self.folder}; "
                "the same command resumes it."
            )


def _means_of(process: int) -> str:
    """Return the name under which a state has the running means of a process."""
    return f"means.{process}" if process else "means"


def _loader(trainer: Trainer) -> ResumableLoader:
    return cast(ResumableLoader, trainer.train_dataloader)
