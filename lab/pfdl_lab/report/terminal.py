"""Tables, and an experiment in short, for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from pfdl.report.blocks import Glance
from pfdl.report.tables import Number, Table

WIDTH, PIPED_WIDTH = 100, 240


def print_table(table: Table) -> None:
    """Print a table on standard output, under its caption; what is bold on a page is bold here."""
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    _print(console, table, table.caption, table.note)


def print_glance(title: str, glance: Glance) -> None:
    """Print a small table and one sentence on standard output, under a title."""
    console = Console(soft_wrap=False)
    console.width = min(console.width, WIDTH)
    _print(console, glance.table, title, glance.table.caption)
    console.print(escape(glance.sentence) + "\n", highlight=False)


def _print(console: Console, table: Table, title: str, caption: str) -> None:
    grid = Grid(title=escape(title), caption=escape(caption) or None, title_justify="left", caption_justify="left")
    grid.add_column(escape(table.corner))
    for name in table.columns:
        grid.add_column(escape(name), justify="right")
    for row in table.rows:
        cells = []
        for cell in row.cells:
            text = escape(f"{cell}, {cell.remark}" if isinstance(cell, Number) and cell.remark else str(cell))
            cells.append(f"[bold]{text}[/bold]" if isinstance(cell, Number) and cell.strong else text)
        grid.add_row(escape(row.header), *cells, style="dim" if row.quiet else None)
    console.print(grid)
