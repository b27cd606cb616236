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
        list[Path],
        typer.Argument(metavar="RUNS…", help="Run folders, and folders that hold run folders."),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The page to write; a name in .md gives Markdown."),
    ] = (Path("report.html")),
) -> None:
    """Write one page from any number of run folders: tables beside the paper's figures, plots, how
    it was made.

    An HTML page works offline, on a phone and on paper. Of a Markdown page that exists, everything
    above the line that begins with '<!-- All below' is kept. Runs that are not finished are shown
    with what they have.

        pfdl report runs/ -o report.html

        pfdl report docs/results/colored-mnist -o docs/results/colored-mnist.md
    """
    with exit_on_user_error():
        from pfdl_lab.reporting import write_report

        for problem in write_report(runs, output).problems:
            typer.echo(f"Note: {printable(problem)}", err=True)
        typer.echo(output)


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the runs and the page.")
    ] = Path("runs/demo"),
) -> None:
    """Show all three experiments in small: about two minutes on two cores, no data, no GPU, one
    page at the end.

    An interrupted demonstration resumes when started again. The page opens in a browser if the
    session is interactive.
    """
    from rich.console import Console

    with exit_on_user_error():
        from pfdl_lab import demo as demonstration

        page, written = demonstration.run(output, Console(stderr=True))
        for title, finding in written.findings.items():
            typer.echo(f"{title}: {finding}")
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
