"""The table of several trainings that differ in their seed alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from pathlib import Path

import typer

SEEDS = "seeds.csv"


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
