"""What the laboratory's commands share."""

from __future__ import annotations

from pathlib import Path

import typer


def print_tables(output: Path) -> None:
    """Write the tables and plots of an experiment into its run folder, and print their names."""
    from pfdl_lab.reporting import write_tables

    for path in write_tables(output):
        typer.echo(path)
