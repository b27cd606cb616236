"""What experiments on several seeds share: a split for each, its training, and the accuracies that are noted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pfdl.data import open_images, read_manifest
from pfdl.data.manifest import Manifest
from pfdl.vision.checkpoint import load_model
from pfdl.vision.evaluation import Evaluation, evaluate, save_evaluation
from pfdl.vision.training import TrainingConfig, train


def save_split(split: Manifest, output: Path, seed: int) -> str:
    """Write the split of a seed into the run folder of an experiment; return its hash, other images give another."""
    split.save(_split_path(output, seed))
    return split.sha256


def read_split(output: Path, seed: int) -> Manifest:
    """Read what :func:`save_split` wrote."""
    return read_manifest(_split_path(output, seed))


def _split_path(output: Path, seed: int) -> Path:
    return output / "splits" / f"seed-{seed}.csv"


def accuracy_lines(result: Evaluation) -> list[dict[str, Any]]:
    """Return lines of ``test`` and ``accuracy`` in percent: ``all``, the worst group or class, then each ratio."""
    worst = "worst group" if result.by_context else "worst class"
    shares = {"all": result.overall, worst: result.worst_group.accuracy, **result.by_ratio}
    return [{"test": test, "accuracy": 100 * share} for test, share in shares.items()]


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
