"""Several trainings that differ in their seed alone: side by side, and their table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pfdl.cli.common import answering_stops
from pfdl.cli.images import print_evaluation
from pfdl.cli.workers import Parallel

if TYPE_CHECKING:
    from pfdl.data.manifest import Manifest

SEEDS = "seeds.csv"


def train_side_by_side(
    splits: Mapping[int, Manifest], base: Path, device: str, parallel: Parallel, **how: Any
) -> dict[int, Path]:
    """Train and test with every seed, several at a time, each in its own run folder, and print how they did.

    Args:
        splits: For each seed its split.
        base: The folder of them all; of a single seed the run folder itself.
        device: What :meth:`pfdl.cli.workers.Parallel.find_device` returned.
        parallel: How many at a time, and where.
        **how: What :func:`pfdl.experiments.seeds.train_seed` takes further.

    Returns:
        For each seed its run folder.
    """
    from rich.console import Console

    from pfdl.experiments.seeds import train_seed
    from pfdl.vision.evaluation import OWN, read_evaluations

    runs = {seed: base if len(splits) == 1 else base / f"seed-{seed}" for seed in splits}
    tasks = [{"seed": seed, "split": split, "folder": runs[seed]} for seed, split in splits.items()]
    function = partial(train_seed, device=device, **how)
    with answering_stops(), parallel.workers(device, Console(stderr=True), share_cores=True) as workers:
        for done, (task, _) in enumerate(workers.run(function, tasks), start=1):
            typer.echo(f"{done} of {len(tasks)} trainings done: seed {task['seed']}", err=True)
    for run in runs.values():
        print_evaluation(read_evaluations(run)[OWN])
    return runs


def print_seeds(runs: Mapping[int, Path], folder: Path) -> None:
    """Print the mean and standard error of each accuracy over seeds, and write every figure to ``seeds.csv``.

    Args:
        runs: For each seed its run folder, evaluated on its own test images.
        folder: Where the table goes.
    """
    from pfdl._internal.files import write_atomically
    from pfdl.vision.evaluation import OWN, read_evaluations

    figures: dict[str, dict[int, float]] = {}
    for seed, run in runs.items():
        found = read_evaluations(run)[OWN]
        accuracies = {"all": found.overall, "worst group": found.worst_group.accuracy, **found.by_ratio}
        for test, accuracy in accuracies.items():
            figures.setdefault(test, {})[seed] = 100 * accuracy
    lines = [f"{seed},{test},{value:.4f}" for test, values in figures.items() for seed, value in values.items()]
    write_atomically(folder / SEEDS, "\n".join(["seed,test,accuracy", *lines]) + "\n")
    typer.echo(f"Accuracy (%) over {len(runs)} seeds, mean ± standard error:")
    for test, values in figures.items():
        error = statistics.stdev(values.values()) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        typer.echo(f"  {test:<12} {statistics.fmean(values.values()):5.1f} ± {error:.1f}")
    typer.echo(folder / SEEDS)
