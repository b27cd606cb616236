"""An experiment in short, for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pfdl.report.blocks import Glance

WIDTH = 100


def print_glance(title: str, glance: Glance) -> None:
    """Print a small table and one sentence on standard output, under a title."""
    console = Console(soft_wrap=False)
    console.width = min(console.width, WIDTH)
    table = Table(title=escape(title), caption=escape(glance.table.caption), title_justify="left")
    table.caption_justify = "left"
    table.add_column(escape(glance.table.corner))
    for name in glance.table.columns:
        table.add_column(escape(name), justify="right")
    for row in glance.table.rows:
        table.add_row(escape(row.header), *(escape(str(cell)) for cell in row.cells))
    console.print(table)
    console.print(escape(glance.sentence) + "\n", highlight=False)
