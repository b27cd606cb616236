"""A classifier that takes its steps of training itself, without a trainer's cost for each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from pfdl._internal.devices import full_precision
from pfdl._internal.processes import world_size
from pfdl.vision.classifier import ImageClassifier
from pfdl.vision.resume import ResumeCallback
from pfdl.vision.sharding import is_sharded

SHOW_EVERY = 0.2
"""Seconds between two movements of the progress bar."""


class SteppingClassifier(ImageClassifier):
    """Take many steps in what Lightning takes for one, with its signature for that: ``dataloader_iter``.

    Lightning's loop calls two dozen hooks around a step, which are empty in this training; that takes up to half a
    millisecond, a twentieth of the step of a ResNet-18 on a GPU. Several processes return to that loop after each step,
    because the strategies that join them wrap each call.

    The trainer must have a :class:`pfdl.vision.resume.ResumeCallback`. Arguments are those of
    :class:`pfdl.vision.classifier.ImageClassifier`.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.automatic_optimization = False

    def training_step(self, dataloader_iter: Iterator[tuple[Any, int, int]]) -> None:  # type: ignore[override]
        """Descend on the objective, one step for each batch, until it is time to show progress."""
        resume = cast(ResumeCallback, self.trainer.checkpoint_callback)
        until = time.monotonic() + SHOW_EVERY
        for batch, number, _ in dataloader_iter:
            if batch is not None:  # it was not trained before a stop
                resume.before_step(number)
                self.check_contexts(batch)
                self._descend([part.to(self.device, non_blocking=True) for part in batch])
                resume.after_step(number)
            if world_size() > 1 or time.monotonic() >= until:
                break

    def _descend(self, batch: Sequence[Tensor]) -> None:
        loss = self.loss_of(batch)
        if loss is None:
            return
        (optimizer,) = self.trainer.optimizers
        with full_precision(loss.device.type):  # Lightning is in the middle of its forward pass
            optimizer.zero_grad()
            if world_size() > 1:
                self.manual_backward(loss)
            else:
                torch.autograd.backward(loss)
            optimizer.step()
        torch.clear_autocast_cache()  # some releases of Lightning keep casts of the weights, which are old now

    def make_optimizer(self, **implementation: Any) -> torch.optim.Optimizer:
        """Return the optimiser, which changes all weights in one call where PyTorch can."""
        can = self.device.type in ("cpu", "cuda") and not is_sharded(self.backbone)
        return super().make_optimizer(fused=True if can else None, **implementation)

    def on_train_epoch_end(self) -> None:
        """Log the means of the epoch, and go on in the schedule."""
        super().on_train_epoch_end()
        for config in self.trainer.lr_scheduler_configs:
            config.scheduler.step()  # type: ignore[call-arg]
