"""The command that writes the report page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pfdl.cli_images import answering_mistakes


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS…", help="Run folders, and folders that hold run folders.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one HTML page from any number of run folders: tables beside the paper's figures, plots, how it was made.

    The page works offline, on a phone and on paper. Runs that are not finished are shown with what they have.

        pfdl report runs/ -o report.html
    """
    with answering_mistakes():
        from pfdl.report.write import write_report

        for problem in write_report(runs, output):
            typer.echo(f"Note: {problem}", err=True)
        typer.echo(output)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(report)
