"""The command that asks whether a model leans on correlations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pfdl._internal.text import printable, printable_lines
from pfdl.cli.common import DATA_HELP, Device, Superclass, answering_mistakes
from pfdl.cli.images import open_source

if TYPE_CHECKING:
    from pfdl.vision.diagnosis import ImageDiagnosis

SHOWN_FEATURES = 5
TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".parquet")


def diagnose(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN|TABLE", help="The folder that pfdl train made; or a table: CSV or Parquet."),
    ],
    data: Annotated[str | None, typer.Argument(metavar="DIR|contexts", help=DATA_HELP)] = None,
    compare: Annotated[Path | None, typer.Option(help="A second run, shown side by side.")] = None,
    target: Annotated[str | None, typer.Option(help="For a table: the column to be predicted.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("diagnosis.html"),
    superclass: Superclass = None,
    device: Device = "auto",
) -> None:
    """Is a model leaning on correlations? A verdict in words, and a page that shows why.

    A trained model is judged on the test images of its own split: which features can be told from the others, within
    classes and across them, what they know of the context, and whether its answers follow it. A table is
    screened: which columns follow the target only because of how the rows were selected?

        pfdl diagnose runs/erm contexts --compare runs/pfdl

        pfdl diagnose table.csv --target y
    """
    with answering_mistakes():
        if run.suffix.lower() in TABLE_SUFFIXES:
            if data is not None or compare is not None:
                raise ValueError(f"{run} is a table: it takes --target and neither images nor --compare.")
            _diagnose_table(run, target, output)
        elif target is not None:
            endings = ", ".join(TABLE_SUFFIXES)
            raise ValueError(f"--target is for a table, and {run} is none: give a file that ends in {endings}.")
        elif data is None:
            raise ValueError(f"say where the images of {run} are: pfdl diagnose {run} DIR (or the word contexts).")
        else:
            _diagnose_runs([run] if compare is None else [run, compare], data, superclass, device, output)
        typer.echo(output)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(diagnose)


def _diagnose_runs(runs: list[Path], data: str, superclass: str | None, device: str, output: Path) -> None:
    from rich.console import Console
    from rich.markup import escape

    from pfdl._internal.devices import resolve_device
    from pfdl._internal.files import write_atomically
    from pfdl.data import read_manifest
    from pfdl.report.diagnosis_page import build_page, name_runs
    from pfdl.report.page import render
    from pfdl.vision.checkpoint import load_model
    from pfdl.vision.diagnosis import diagnose_images

    place = resolve_device(device)
    found = []
    for run in runs:
        trained = load_model(run)
        split = read_manifest(trained.folder / "manifest.csv")
        source = open_source(data, superclass, "skip", split)
        with Console(stderr=True).status(f"Diagnosing {escape(str(run))} on {place} …"):  # silent unless on a terminal
            found.append(diagnose_images(trained, source, split, device=place))
    for name, one in zip(name_runs(found), found, strict=True):
        if len(found) > 1:
            typer.echo(f"{printable(name)}:")
        _print(one)
    problems: list[str] = []
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, render(build_page(found, problems)))
    for problem in problems:
        typer.echo(f"Note: {printable(problem)}", err=True)


def _print(one: ImageDiagnosis) -> None:
    for words in one.verdict():
        typer.echo(printable(words))
    typer.echo("Most predictable features:")
    for feature, line in one.found.frame().head(SHOWN_FEATURES).iterrows():
        typer.echo(f"  {feature}: R² {line['r2']:.4f}, within classes {line['r2_within_class']:.4f}")


def _diagnose_table(path: Path, target: str | None, output: Path) -> None:
    from pfdl._internal.files import write_atomically
    from pfdl.report.page import render
    from pfdl.report.table_page import build_page
    from pfdl.tabular import SelectionScreen
    from pfdl.tabular.advice import advice
    from pfdl.tabular.reading import read_table

    if target is None:
        raise ValueError(f"say which column of {path} is to be predicted: --target NAME.")
    table = read_table(path, target)
    screen = SelectionScreen().fit(table.X, table.y)
    for note in table.notes:
        typer.echo(f"Note: {printable(note)}", err=True)
    typer.echo(printable_lines(screen.verdict_))
    code = advice(screen, table.y)
    typer.echo(printable_lines(code))
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, render(build_page(screen.screening_plot(), path.name, target, table.notes, code)))
