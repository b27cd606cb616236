"""A plot: what draws it on Matplotlib's axes, its description, and its picture."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pfdl.report.tables import Table

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
