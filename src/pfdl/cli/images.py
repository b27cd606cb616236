"""What commands do with images: open them, say what was understood, test a model on them and print the figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pfdl._internal.text import printable

if TYPE_CHECKING:
    from pfdl.data.manifest import Manifest
    from pfdl.data.sources import ContextSource
    from pfdl.vision.checkpoint import TrainedModel
    from pfdl.vision.config import DataOptions


def open_source(data: str, options: DataOptions, split: Manifest | None) -> ContextSource:
    """Open the images that a command was given, and name those that cannot be used.

    With a split of these images that exists already, each image is checked when it is loaded.
    """
    from rich.console import Console

    from pfdl._internal.processes import rank
    from pfdl._internal.progress import progress_bar
    from pfdl.data import open_images
    from pfdl.data.sources import ImageFiles, describe_bad_images

    source = open_images(data, **options.arguments(), like=split)
    if split is None and isinstance(source, ImageFiles):
        with progress_bar("checking images", None if rank() else Console(stderr=True)) as show:
            bad = source.check(show).bad
        if bad and rank() == 0:
            typer.echo(describe_bad_images(source.root, bad, "They are left out."), err=True)
    return source


def open_run(run: Path, data: str, options: DataOptions) -> tuple[TrainedModel, Manifest, ContextSource]:
    """Open a trained model, its own split, and images for it, of which bad ones are left out."""
    from pfdl._internal.runs import MANIFEST
    from pfdl.data import read_manifest
    from pfdl.vision import load_model

    trained = load_model(run)
    own = read_manifest(trained.folder / MANIFEST)
    return trained, own, open_source(data, replace(options, on_bad_image="skip"), own)


def print_understood(split: Manifest) -> None:
    """Say in two lines, on standard error, what was understood of the data, and what to know about its split."""
    typer.echo(split.describe(), err=True)
    for note in split.notes:
        typer.echo(f"Note: {note}", err=True)


def evaluate_and_print(
    trained: TrainedModel,
    source: ContextSource,
    split: Manifest,
    device: str,
    *,
    name: str = "test",
    trained_on: Manifest | None = None,
) -> Path:
    """Test a model, write the figures into its run, and print them as tables and sentences."""
    import pandas as pd

    from pfdl.vision.evaluation import describe_evaluation, evaluate, measure_gap, save_evaluation

    result = evaluate(trained, source, split, name=name, trained_on=trained_on, device=device)
    path = save_evaluation(trained.folder, result)
    by = {"dominant ratio of the test set": result.by_ratio, "class": result.by_label, "context": result.by_context}
    for what, shares in by.items():
        if shares:
            table = 100 * pd.DataFrame([shares]).rename(columns=printable)
            typer.echo(f"Accuracy (%) by {what}")
            typer.echo(table.to_string(index=False, float_format="{:.1f}".format))
    gap = measure_gap(trained.folder, result)
    for sentence in [*describe_evaluation(result), *([gap.sentence()] if gap else [])]:
        typer.echo(printable(sentence))
    return path
