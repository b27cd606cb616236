"""What a report is made of. The same blocks become HTML (:func:`render`) and Markdown
(``markdown.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from pfdl.report.page import blocks as html, draw_svg, inline, render as render_page

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Text:
    """A paragraph.

    Args:
        text: Its words, shown as they stand.
        tone: ``""``, or ``"warning"`` for what went wrong.
    """

    text: str
    tone: str = ""


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Listing:
    """Text set as it stands, folded away under a title."""

    title: str
    text: str


@dataclass(frozen=True)
class Number:
    """A measured figure.

    Args:
        value: The figure.
        error: What follows the ±, or None; NaN where one measurement gives none.
        digits: Decimals to print.
        signed: Whether a plus is printed.
        strong: Whether it stands out.
        remark: Words that follow it.
    """

    value: float
    error: float | None = None
    digits: int = 1
    signed: bool = False
    strong: bool = False
    remark: str = ""

    @property
    def printed(self) -> str:
        """The figure with a proper minus."""
        return f"{self.value:{'+' if self.signed else ''}.{self.digits}f}".replace("-", "−")

    @property
    def printed_error(self) -> str:
        """What follows the ±; empty where there is none."""
        return (
            "" if self.error is None or math.isnan(self.error) else f"{self.error:.{self.digits}f}"
        )

    def __str__(self) -> str:
        return f"{self.printed} ± {self.printed_error}" if self.printed_error else self.printed


@dataclass(frozen=True)
class Missing:
    """A cell without a figure: a dash to the eye, and to a screen reader the reason."""

    reason: str = "not run"

    def __str__(self) -> str:
        return self.reason


Cell = str | Number | Missing


@dataclass(frozen=True)
class TableLine:
    """A line of a table.

    Args:
        header: What it is about.
        cells: One for each column.
        quiet: Whether it stands in the background: figures of others beside ours.
    """

    header: str
    cells: tuple[Cell, ...]
    quiet: bool = False


@dataclass(frozen=True)
class Table:
    """A table with a header to every row and column.

    Args:
        caption: What it shows.
        corner: Header of the column of row headers.
        columns: Headers of the other columns.
        rows: Lines.
        note: A remark below it.
    """

    caption: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[TableLine]
    note: str = ""

    @property
    def notes(self) -> list[str]:
        """What is said below the table: what a ± means, where there is one, and the remark."""
        cells = chain.from_iterable(row.cells for row in self.rows)
        has_errors = any(isinstance(cell, Number) and cell.printed_error for cell in cells)
        return [
            *(["± standard error."] if has_errors else []),
            *([self.note] if self.note else []),
        ]


def table_of(caption: str, frame: pd.DataFrame, *, digits: int = 4, note: str = "") -> Table:
    """Return a frame as a table, as it stands, with so many digits of its numbers."""
    rows = []
    for header, line in zip(frame.index, frame.to_numpy(object), strict=True):
        cells = [f"{one:.{digits}g}" if isinstance(one, float) else str(one) for one in line]
        rows.append(TableLine(str(header), tuple(cells)))
    return Table(caption, str(frame.index.name or ""), list(map(str, frame)), rows, note=note)


@dataclass(frozen=True)
class Plot:
    """A picture, with the words that stand with it.

    Args:
        title: What it shows.
        summary: What there is to see, in words: it stands with the plot and is read to those who do
            not see it.
        draw: Draws it on axes, names of the axes and legend included.
        table: The figures, which stand below it, folded away; None for none.
    """

    title: str
    summary: str
    draw: Callable[[Axes], Any]
    table: Table | None = None

    def svg(self) -> str:
        """Draw the plot as an SVG file."""
        return draw_svg(self.draw)


Block = Text | Heading | Table | Plot | Listing


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Args:
        title: Its heading, which the list of contents names.
        blocks: What it holds.
    """

    title: str
    blocks: Sequence[Block] = ()


def render(
    title: str, introduction: Sequence[Block], sections: Sequence[Section], footer: str = ""
) -> str:
    """Return a page as one HTML file.

    Args:
        title: Its name.
        introduction: Blocks before the first section.
        sections: Parts.
        footer: The last line.
    """
    first = [_show(block, f"introduction-{number}") for number, block in enumerate(introduction, 1)]
    parts = []
    for number, section in enumerate(sections, 1):
        shown = [
            _show(block, f"block-{number}-{place}") for place, block in enumerate(section.blocks, 1)
        ]
        parts.append((section.title, shown))
    return render_page(title, first, parts, footer)


def _show(block: Block, name: str) -> Markup:
    """Return a block as a piece of HTML; the name is that of its parts, which no other block may
    have.
    """
    match block:
        case Text(words, tone):
            shown = html.text(words, tone)
        case Heading(words):
            shown = Markup("<h3>{}</h3>").format(words)
        case Listing(title, text):
            shown = html.listing(title, text)
        case Table():
            rows = [(row.header, list(map(_show_cell, row.cells))) for row in block.rows]
            quiet = [number for number, row in enumerate(block.rows) if row.quiet]
            shown = html.table(block.caption, block.corner, block.columns, rows, block.notes, quiet)
        case Plot():
            figures = _show(block.table, "") if block.table else ""
            shown = html.plot(block.title, block.summary, inline(block.svg(), name), name, figures)
    return Markup(shown)


def _show_cell(cell: Cell) -> str:
    match cell:
        case Number():
            return Markup(html.number(cell.printed, cell.printed_error, cell.remark, cell.strong))
        case Missing(reason):
            return Markup(html.missing(reason))
    return cell
