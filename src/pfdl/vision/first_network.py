"""The first network of JTT, SPARE and EIIL, from whose logits contexts are found."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace

import torch
from lightning.fabric import Fabric
from rich.console import Console
from torch import Tensor

from pfdl._internal.progress import progress_bar
from pfdl.data.context_images import ContextImages
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource
from pfdl.vision.classifier import Classifier
from pfdl.vision.config import TrainingConfig
from pfdl.vision.features import BATCH
from pfdl.vision.loop import Loop
from pfdl.vision.training_data import TrainingData


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


def first_logits(
    config: TrainingConfig,
    source: ContextSource,
    manifest: Manifest,
    fabric: Fabric,
    *,
    num_workers: int,
    shows: bool,
    sets: Sequence[ContextImages],
) -> Tensor:
    """Train the first network of a training, and return its logits of all images of some sets, in
    order, on the CPU; all processes must call.

    Args:
        config: How the second network is trained.
        source: Where the images come from.
        manifest: Which image is in which set.
        fabric: Where it is trained.
        num_workers: Processes that load images.
        shows: Whether to show progress on standard error.
        sets: Whose logits are returned.

    Raises:
        ValueError: If the training diverges.
    """
    config = plain_config(config)
    if shows:
        print(f"Training the first network; epochs: {config.epochs}.", file=sys.stderr, flush=True)
    torch.manual_seed(config.seed)
    batches = TrainingData(config, source, manifest, num_workers=num_workers).train_loader(
        fabric.device
    )
    width = getattr(source, "num_features", 0)
    model = Classifier(config, len(manifest.classes), input_features=width)
    loop = Loop(model, batches, fabric)
    console = Console(stderr=True) if shows else None
    with progress_bar("training the first network", console) as show:
        while loop.epoch < config.epochs:
            for _ in loop.train_epoch():
                show(*loop.progress)
            if not math.isfinite(loop.end_epoch()["train_loss"]):
                raise ValueError(
                    "training of the first network diverged; try a smaller learning rate."
                )
    model.eval()
    logits = []
    for images in sets:
        for rows in torch.split(torch.arange(len(images)), BATCH):
            with torch.no_grad(), fabric.autocast():
                logits.append(model(images.batch(rows).to(fabric.device)).float().cpu())
    return torch.cat(logits)
