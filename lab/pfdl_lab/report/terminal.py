"""Tables for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from pfdl.report.tables import Number, Table

PIPED_WIDTH = 240


def print_table(table: Table) -> None:
    """Print a table on standard output, under its caption; what is bold on a page is bold here."""
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    caption = escape(" ".join(table.notes)) or None
    grid = Grid(title=escape(table.caption), caption=caption, title_justify="left", caption_justify="left")
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
