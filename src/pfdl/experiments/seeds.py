"""One of several trainings that differ in their seed alone, for :class:`pfdl.experiments.workers.Workers` to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pfdl.data import open_images
from pfdl.data.manifest import Manifest
from pfdl.vision.checkpoint import load_model
from pfdl.vision.evaluation import evaluate, save_evaluation
from pfdl.vision.training import TrainingConfig, train


def train_seed(
    seed: int,
    split: Manifest,
    folder: Path,
    *,
    config: TrainingConfig,
    images: Mapping[str, Any],
    device: str,
    num_workers: int = 0,
    loggers: Sequence[str] | None = None,
) -> None:
    """Train with one seed, or resume such a training, then test it; all results are in its run folder.

    Args:
        seed: Of the training.
        split: Which image is in which set.
        folder: Its run folder.
        config: How to train, but for the seed.
        images: What :func:`pfdl.data.open_images` takes; each image is checked when it is loaded.
        device: Where to compute.
        num_workers: Processes that load images.
        loggers: As in :func:`pfdl.vision.training.train`.
    """
    source = open_images(**images, like=split)
    place = train(
        replace(config, seed=seed),
        source,
        split,
        folder,
        device=device,
        devices=1,
        nodes=1,
        num_workers=num_workers,
        loggers=loggers,
    )
    save_evaluation(place, evaluate(load_model(place), source, split, device=device))
