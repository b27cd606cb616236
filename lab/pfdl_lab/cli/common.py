"""What the laboratory's commands share."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from pfdl_lab.workers import Execution

if TYPE_CHECKING:
    import pandas as pd

MAX_TABLES = 4
"""So many tables of a run are printed on the terminal; all are in its folder."""

Output = Annotated[
    Path, typer.Option("--output", "-o", help="Run folder, with results.csv, table.md and figures.")
]
Mnist = Annotated[
    Path | None,
    typer.Option(
        envvar="PFDL_MNIST",
        help="Folder of the four MNIST files. Without it: scikit-learn's digits.",
    ),
]
Rows = Annotated[
    str,
    typer.Option(
        help=(
            "With commas: keys of rows, names of objectives, and the lists paper, methods, factors"
            " (variants of PFDL), declared, grid and practice; an unknown one is answered with all"
            " keys."
        )
    ),
]


def seen_by_user(execution: Execution) -> Execution:
    """Return where a command runs, with the device that is there, progress on the terminal and what
    was typed.
    """
    return replace(execution.resolved(), console=Console(stderr=True), command=_this_command())


def _this_command() -> str:
    """Return the command line for the record; an absolute path is cut to its name, for it may name
    a person.
    """
    return shlex.join(
        ["pfdl", *(Path(part).name if Path(part).is_absolute() else part for part in sys.argv[1:])]
    )


def print_tables(output: Path, results: pd.DataFrame) -> None:
    """Write the tables and plots of an experiment into its run folder, print the first, and name
    the files.

    Args:
        output: The run folder.
        results: What the experiment has returned.
    """
    from pfdl_lab.report.blocks import Table, Text
    from pfdl_lab.report.markdown import print_table
    from pfdl_lab.reporting import TABLE, write_tables

    section, files = write_tables(output, results)
    tables = [block for block in section.blocks if isinstance(block, Table)]
    for table in tables[:MAX_TABLES]:
        print_table(table)
    for block in section.blocks:
        if isinstance(block, Text) and block.tone == "warning":
            typer.echo(f"Note: {block.text}")
    left = len(tables) - MAX_TABLES
    if left > 0:
        typer.echo(f"Note: {left} more tables stand in {TABLE}.")
    for path in files:
        typer.echo(path)
