"""The first network of JTT, SPARE and EIIL, from whose logits contexts are found."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from rich.console import Console
from torch import Tensor

from pfdl._internal.progress import progress_bar
from pfdl.data.context_images import ContextImages
from pfdl.vision.classifier import Classifier
from pfdl.vision.config import TrainingConfig
from pfdl.vision.features import BATCH
from pfdl.vision.loop import Loop


def plain_config(config: TrainingConfig) -> TrainingConfig:
    """Return how the first network of a training is trained: by plain risk minimisation, for
    ``infer_epochs``.
    """
    return replace(
        config,
        objective="erm",
        objective_settings={},
        contexts="hidden",
        infer_by="auto",
        infer_settings={},
        confirm=True,
        epochs=config.infer_epochs,
        decay_every=config.decay_every or max(1, config.epochs // 2),
        sampler="shuffle",
        sampler_power=1.0,
    )


class FirstNetwork:
    """Train a network when its logits are first asked for; all processes must ask.

    Args:
        make_loop: Returns the training of the network.
        shows: Whether to show progress on standard error.
    """

    def __init__(self, make_loop: Callable[[], Loop], *, shows: bool) -> None:
        self._make_loop = make_loop
        self._console = Console(stderr=True) if shows else None

    def logits(self, sets: Sequence[ContextImages]) -> Tensor:
        """Return the logits of all images of some sets, in order, on the CPU.

        Raises:
            ValueError: If the training diverges.
        """
        loop = self._make_loop()
        network = self._train(loop)
        found = []
        for images in sets:
            for rows in torch.split(torch.arange(len(images)), BATCH):
                with torch.no_grad(), loop.fabric.autocast():
                    logits: Tensor = network(images.batch(rows).to(loop.fabric.device))
                found.append(logits.float().cpu())
        return torch.cat(found)

    def _train(self, loop: Loop) -> Classifier:
        with progress_bar("training the first network", self._console) as show:
            while loop.epoch < loop.model.config.epochs:
                for _ in loop.train_epoch():
                    show(*loop.progress)
                if not math.isfinite(loop.end_epoch()["train_loss"]):
                    raise ValueError(
                        "training of the first network diverged; try a smaller learning rate."
                    )
        return loop.model.eval()
