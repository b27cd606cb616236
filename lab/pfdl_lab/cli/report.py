"""The commands that write a report page: report, and demo, which makes the runs first."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from pfdl._internal.text import printable
from pfdl.cli.common import exit_on_user_error


def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUNS…",
            help="Run folders, and folders that hold run folders; studies of evidence/, too.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="A page to write: HTML, or Markdown if its name ends in .md."
        ),
    ] = None,
    of_tests: Annotated[
        Path | None,
        typer.Option(
            "--register",
            metavar="EVIDENCE",
            help="Instead, write declared.csv: every declared test of all studies in a folder.",
        ),
    ] = None,
) -> None:
    """Print the tables of any number of run folders, or write one page about them.

    The page has the tables beside the paper's figures, plots, and how the runs were made. An HTML
    page works offline, on a phone and on paper. Runs that are not finished are shown with what they
    have.

        pfdl report runs/ -o report.html

        pfdl report evidence/phases

        pfdl report --register evidence
    """
    with exit_on_user_error():
        if of_tests is not None:
            from pfdl_lab.register import write_register

            typer.echo(write_register(of_tests))
            return
        if not runs:
            raise ValueError("there is nothing to report; name run folders.")
        from pfdl_lab.reporting import print_report, write_report

        problems = write_report(runs, output) if output else print_report(runs)
        for problem in problems:
            typer.echo(f"Note: {printable(problem)}", err=True)
        if output:
            typer.echo(output)


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the runs and the page.")
    ] = Path("runs/demo"),
) -> None:
    """Show a shortcut found, repaired and proved, a table that leaks, and the paper in small.

    About two minutes on two cores; no data, no GPU; one page at the end.

    An interrupted demonstration resumes when started again. The page opens in a browser if the
    session is interactive.
    """
    from rich.console import Console

    with exit_on_user_error():
        from pfdl_lab import demo as demonstration

        page, findings = demonstration.run(output, Console(stderr=True))
        for finding in findings:
            typer.echo(finding)
        open_in_browser(page)
        typer.echo(page)


def open_in_browser(page: Path) -> bool:
    """Open the page in a browser if the session is interactive; return whether one opened."""
    has_display = sys.platform in ("win32", "darwin") or any(
        map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))
    )
    if not has_display or not sys.stdout.isatty():
        return False
    try:
        return webbrowser.open(page.resolve().as_uri())
    except (OSError, webbrowser.Error):
        return False
