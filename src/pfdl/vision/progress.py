"""Show the progress of a training: a bar on a terminal, a line per epoch elsewhere, and no tips from Lightning."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar


def say(text: str) -> None:
    """Print a line on standard error, at once."""
    print(text, file=sys.stderr, flush=True)


def report_epochs(epochs: int) -> Callable[[Mapping[str, float], float], None]:
    """Return what prints one line per epoch."""
    shown = {"train_loss": "loss", "train_accuracy": "accuracy", "val_accuracy": "validation accuracy"}

    def report(row: Mapping[str, float], seconds: float) -> None:
        parts = [f"{words} {row[name]:.4f}" for name, words in shown.items() if name in row]
        say(f"epoch {int(row['epoch']) + 1}/{epochs}: {', '.join(parts)} ({seconds:.1f} s)")

    return report


class ProgressBar(RichProgressBar):
    """Lightning's bar, on standard error."""

    def __init__(self) -> None:
        super().__init__(console_kwargs={"stderr": True})  # what is piped stays clean

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """Return all but the logger's version, which says nothing here."""
        return {name: value for name, value in super().get_metrics(trainer, pl_module).items() if name != "v_num"}


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence the tips, and the warnings that do not apply here: small sets are fastest without workers."""
    loggers = [logging.getLogger(f"lightning.{part}") for part in ("pytorch", "fabric")]
    levels = {logger: logger.level for logger in loggers}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for message in (
                ".*does not have many workers.*",
                ".*dataloader_iter.*",
                ".*isinstance.*LeafSpec.*",
                ".*GPU available but not used.*",
                ".*`srun` command is available.*",
                ".*lr_scheduler.step.*before.*optimizer.step.*",
                ".*Total length of `list` across ranks is zero.*",
            ):
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
