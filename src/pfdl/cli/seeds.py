"""Train with one seed or several, one after the other or side by side; print how they did, and their table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pfdl.cli.common import answering_stops
from pfdl.cli.images import ask_to_go_on, evaluate_and_print, print_evaluation, print_understood
from pfdl.cli.workers import Parallel

if TYPE_CHECKING:
    from pfdl.data.manifest import Manifest
    from pfdl.data.sources import ContextSource
    from pfdl.vision.config import TrainingConfig

SEEDS = "seeds.csv"


@dataclass(frozen=True)
class Seeds:
    """A training with one seed or several.

    Args:
        splits: For each seed its split.
        runs: For each seed its run folder.
        source: The images.
        config: How to train, but for the seed.
        device: Where to compute.
    """

    splits: Mapping[int, Manifest]
    runs: Mapping[int, Path]
    source: ContextSource
    config: TrainingConfig
    device: str

    def train_in_turn(self, **how: Any) -> None:
        """Train and test with one seed after the other; of several processes only the first prints.

        Args:
            **how: What :func:`pfdl.vision.training.train` takes further.
        """
        from pfdl._internal.processes import rank
        from pfdl.vision.checkpoint import load_model
        from pfdl.vision.training import train

        is_first = rank() == 0
        for seed, split in self.splits.items():
            if is_first:
                print_understood(self.source, split)
            config = replace(self.config, seed=seed)
            with answering_stops():
                train(
                    config,
                    self.source,
                    split,
                    self.runs[seed],
                    device=self.device,
                    progress=True,
                    on_unconfirmed=ask_to_go_on,
                    **how,
                )
            if is_first:
                evaluate_and_print(load_model(self.runs[seed]), self.source, split, self.device)

    def train_side_by_side(self, parallel: Parallel, **how: Any) -> None:
        """Train and test with several seeds at a time.

        Args:
            parallel: How many at a time, and where.
            **how: ``images``, for :func:`pfdl.data.open_images`, and what :func:`pfdl.vision.train` takes further.
        """
        from pfdl.vision.evaluation import OWN, read_evaluations

        for split in self.splits.values():
            print_understood(self.source, split)
        tasks = [{"seed": seed, "split": split, "folder": self.runs[seed]} for seed, split in self.splits.items()]
        function = partial(_train_and_test, config=self.config, device=self.device, **how)
        workers = parallel.execution(self.device, share_cores=True).workers
        with answering_stops():
            for done, (task, _) in enumerate(workers.run(function, tasks), start=1):
                typer.echo(f"{done} of {len(tasks)} trainings done: seed {task['seed']}", err=True)
        for run in self.runs.values():
            print_evaluation(run, read_evaluations(run)[OWN])


def _train_and_test(
    seed: int,
    split: Manifest,
    folder: Path,
    *,
    config: TrainingConfig,
    images: Mapping[str, Any],
    device: str,
    **how: Any,
) -> None:
    """Train with one seed in a process of its own, then test; all results are in the run folder."""
    from pfdl.data import open_images
    from pfdl.vision import evaluate, load_model, train
    from pfdl.vision.evaluation import save_evaluation

    source = open_images(**images, like=split)
    train(replace(config, seed=seed), source, split, folder, device=device, devices=1, nodes=1, **how)
    save_evaluation(folder, evaluate(load_model(folder), source, split, device=device))


def print_models(runs: Mapping[int, Path], base: Path, *, export: bool) -> None:
    """Print where the trained models are, export them where that is possible, and print the table of several seeds.

    Args:
        runs: For each seed its run folder, evaluated on its own test images.
        base: Where the table goes.
        export: Whether to write ONNX files.
    """
    from pfdl.vision.checkpoint import load_model
    from pfdl.vision.exporting import export as write

    for run in runs.values():
        typer.echo(run / "model.safetensors")
        try:
            for path in write(load_model(run), run / "export") if export else ():
                typer.echo(path)
        except ImportError as error:
            typer.echo(f"No ONNX file: {error}", err=True)
    if len(runs) > 1:
        _print_table(runs, base)


def _print_table(runs: Mapping[int, Path], folder: Path) -> None:
    """Print the mean and standard error of each accuracy over seeds, and write every figure to ``seeds.csv``."""
    import pandas as pd

    from pfdl._internal.files import write_atomically
    from pfdl.vision.evaluation import OWN, read_evaluations

    lines = [{"seed": seed, **line} for seed, run in runs.items() for line in read_evaluations(run)[OWN].lines()]
    table = pd.DataFrame(lines)
    write_atomically(folder / SEEDS, table.to_csv(index=False, float_format="%.4f"))
    typer.echo(f"Accuracy (%) over {len(runs)} seeds, mean ± standard error:")
    for test, row in table.groupby("test", sort=False)["accuracy"].agg(["mean", "sem"]).iterrows():
        typer.echo(f"  {test:<12} {row['mean']:5.1f} ± {row['sem']:.1f}")
    typer.echo(folder / SEEDS)
