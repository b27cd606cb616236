"""What the laboratory's commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MAX_TABLES = 4
"""So many tables of a run are printed on the terminal; all are in its folder."""

Precision = Annotated[str, typer.Option(help="bf16: convolutions in bfloat16 on a GPU; or 32.")]
Validation = Annotated[
    float,
    typer.Option(
        min=0.0, max=0.9, help="Share of the training set to hold out; it chooses an epoch, tested beside the last."
    ),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="Run folder, with results.csv, table.md and figures.")]
FirstSeed = Annotated[int, typer.Option(min=0, help="The first seed.")]
Mnist = Annotated[
    Path | None,
    typer.Option(envvar="PFDL_MNIST", help="Folder of the four MNIST files. Without it: scikit-learn's digits."),
]
TestEvery = Annotated[int, typer.Option(min=0, help="Also test after every so many epochs.")]


def print_tables(output: Path) -> None:
    """Write the tables and plots of an experiment into its run folder, print the first, and name the files."""
    from pfdl.report.tables import Table
    from pfdl_lab.report.markdown import print_table
    from pfdl_lab.reporting import write_tables

    section, files = write_tables(output)
    for table in [block for block in section.flat() if isinstance(block, Table)][:MAX_TABLES]:
        print_table(table)
    for path in files:
        typer.echo(path)
