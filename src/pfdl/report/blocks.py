"""What a page is made of. The same blocks become HTML (:mod:`pfdl.report.page`) and, in the laboratory, Markdown."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PALETTE = {
    "page": ("#fdfdfb", "#14171b"),
    "ink": ("#1d2126", "#e6e7e4"),
    "soft": ("#5a626c", "#a2a9b1"),
    "line": ("#d9dcd7", "#343a41"),
    "c0": ("#5f6670", "#a9b1ba"),
    "c1": ("#0b6bb5", "#64b2f2"),
    "c2": ("#b8501a", "#f0935a"),
    "c3": ("#1d7f54", "#5fcb97"),
    "c4": ("#8a3fa0", "#cf92e2"),
    "c5": ("#a8781a", "#e0b858"),
    "c6": ("#c02f4d", "#f77f96"),
    "c7": ("#0f8a92", "#5ccfd6"),
    "c8": ("#6b5bd0", "#aea3fa"),
    "c9": ("#7a5a3a", "#cfa983"),
}
"""Colours of pages and plots, in light and in dark. A picture has the light ones; a page exchanges them in the dark."""


@dataclass(frozen=True)
class Text:
    """A paragraph.

    Args:
        text: Its words, shown as they stand.
        tone: ``""``; ``"warning"`` for what went wrong; ``"yes"``, ``"no"`` or ``"unclear"`` for an answer, in red,
            green or grey; ``"command"`` for what to type.
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
        return "" if self.error is None or math.isnan(self.error) else f"{self.error:.{self.digits}f}"

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
class Row:
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
        error_name: What follows a ±; it is said below the table.
    """

    caption: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[Row]
    note: str = ""
    error_name: str = "standard error"

    @property
    def notes(self) -> list[str]:
        """What is said below the table: what a ± means, where there is one, and the remark."""
        has_errors = any(isinstance(cell, Number) and cell.printed_error for row in self.rows for cell in row.cells)
        return [*([f"± {self.error_name}."] if has_errors else []), *([self.note] if self.note else [])]


@dataclass(frozen=True)
class Plot:
    """A picture, with the words that stand with it.

    Args:
        title: What it shows.
        summary: What there is to see, in words: it stands with the plot and is read to those who do not see it.
        draw: Draws it on axes, names of the axes and legend included.
        table: The figures, which stand below it, folded away; None for none.
    """

    title: str
    summary: str
    draw: Callable[[Axes], Any]
    table: Table | None = None

    def svg(self) -> str:
        """Draw the plot by Matplotlib as an SVG file. The same plot gives the same file; names in it are mere text."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        ink, soft, line, page = (PALETTE[name][0] for name in ("ink", "soft", "line", "page"))
        style: Any = {
            "svg.fonttype": "none",
            "svg.hashsalt": "pfdl",
            "text.parse_math": False,  # a name with dollars in it is a name
            "font.size": 10,
            "text.color": ink,
            "axes.labelcolor": ink,
            "axes.edgecolor": soft,
            "axes.facecolor": "none",
            "xtick.color": soft,
            "ytick.color": soft,
            "grid.color": line,
            "figure.facecolor": page,
        }
        with rc_context(style):
            figure = Figure(figsize=(6.8, 4.0), layout="constrained")
            axes = figure.subplots()
            self.draw(axes)
            axes.grid(axis="y", linewidth=0.7)
            axes.spines[["top", "right"]].set_visible(False)
            stream = io.StringIO()
            figure.savefig(stream, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        return stream.getvalue()


@dataclass(frozen=True)
class Thumbnail:
    """A small picture.

    Args:
        png: The bytes of a PNG file.
        alt: What it shows, for those who do not see it.
        caption: What stands below it.
    """

    png: bytes
    alt: str
    caption: str = ""

    @property
    def address(self) -> str:
        """The picture itself, as an address."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


@dataclass(frozen=True)
class Gallery:
    """Small pictures in a row that wraps."""

    title: str
    pictures: Sequence[Thumbnail]


@dataclass(frozen=True)
class SideBySide:
    """Blocks next to each other, or one below the other where the page is narrow."""

    blocks: Sequence[Block]


Block = Text | Heading | Table | Plot | SideBySide | Listing | Gallery


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Args:
        title: Its heading, which the list of contents names.
        blocks: What it holds.
        finding: One sentence on what was found. It also stands at the top of a page of several sections, and
            ``pfdl demo`` prints it.
    """

    title: str
    blocks: Sequence[Block] = ()
    finding: str = ""


@dataclass(frozen=True)
class Page:
    """A whole page.

    Args:
        title: Its name.
        introduction: Blocks before the first section.
        sections: Parts.
        footer: The last line.
    """

    title: str
    introduction: Sequence[Block]
    sections: Sequence[Section]
    footer: str = ""
