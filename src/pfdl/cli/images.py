"""The command that tests a trained model, and the images that commands are given."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pfdl._internal.text import printable, printable_lines
from pfdl.cli.common import BUILT_IN, Data, Device, Run, Superclass, answering_mistakes

if TYPE_CHECKING:
    from pfdl.data.manifest import Manifest
    from pfdl.data.sources import ContextSource
    from pfdl.vision.checkpoint import TrainedModel
    from pfdl.vision.evaluation import Evaluation
EVALUATION = "evaluation.json"


def evaluate(
    run: Run,
    data: Data,
    manifest: Annotated[Path | None, typer.Option(help="Another split than the one the model was trained on.")] = None,
    superclass: Superclass = None,
    device: Device = "auto",
) -> None:
    """Test a trained model: accuracy at the seven ratios, by class and context, worst group, calibration.

    The test images are those of the split that is kept with the model, so none of them was trained on. The figures
    are also written to evaluation.json in the run folder.
    """
    with answering_mistakes():
        from pfdl._internal.devices import resolve_device
        from pfdl.data import read_manifest
        from pfdl.vision.checkpoint import load_model

        device = resolve_device(device)
        trained = load_model(run)
        split = read_manifest(manifest or trained.folder / "manifest.csv")
        source = open_source(data, superclass, "skip", split)
        evaluate_and_print(trained, source, split, device)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(evaluate)


def open_source(data: str, superclass: str | None, on_bad_image: str, split: Manifest | None) -> ContextSource:
    """The images that a command was given; the built-in ones as the split describes them."""
    from rich.console import Console

    from pfdl._internal.progress import counting
    from pfdl.data import ContextFolder, ProceduralContexts
    from pfdl.data.sources import describe_bad_images

    if data == BUILT_IN:
        described = {} if split is None else split.parameters.get("source", {})
        try:
            return ProceduralContexts(
                **{name: described[name] for name in ("per_cell", "temptation", "seed") & described.keys()}
            )
        except TypeError as error:
            raise ValueError(f"the manifest does not describe images of the built-in set: {error}") from None
    with counting("checking images", Console(stderr=True)) as show:
        folder = ContextFolder(data, superclass=superclass, on_bad_image=on_bad_image, on_progress=show)
        bad = split is None and folder.bad_images  # reads every image; with a split each is checked when it is loaded
    if bad:
        typer.echo(printable_lines(describe_bad_images(folder.root, folder.bad_images)), err=True)
    return folder


def evaluate_and_print(trained: TrainedModel, source: ContextSource, split: Manifest, device: str) -> None:
    """Test a model on a split, write the figures into its run folder and print them."""
    from pfdl._internal.files import write_json
    from pfdl.vision.evaluation import evaluate as measure

    result = measure(trained, source, split, device=device)
    write_json(trained.folder / EVALUATION, result.to_dict())
    _print(result)


def _print(result: Evaluation) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def show(title: str, numbers: Mapping[str, float]) -> None:
        table = Table(title=title, title_justify="left")
        for name in numbers:
            table.add_column(Text(printable(name)), justify="right", no_wrap=True)  # as it is, markup or not
        table.add_row(*(f"{100 * value:.1f}" for value in numbers.values()))
        console.print(table)

    console = Console(width=None if sys.stdout.isatty() else 200)
    if result.by_ratio:
        show("Accuracy (%) by dominant ratio of the test set", result.by_ratio)
    show(f"Accuracy (%) by class, all {result.images} test images", result.by_class)
    if result.by_context:
        show("Accuracy (%) by context", result.by_context)
    worst = result.worst_group
    where = printable(f"{worst.class_name} in {worst.context}" if worst.context else worst.class_name)
    console.print(f"Worst group: {where}, {100 * worst.accuracy:.1f} % of {worst.images} images.", markup=False)
    console.print(f"Overall {100 * result.overall:.1f} %; expected calibration error {result.calibration_error:.3f}.")
