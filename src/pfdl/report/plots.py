"""One definition of a plot, from which its picture, its description and the table of its figures are made."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pfdl._internal.text import printable
from pfdl.report.tables import Cell, Missing, Number, Row, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_COLUMNS = 40  # a table with more is not shown; the run folder has the figures
MAX_TICKS = 12  # up to so many numbers on the horizontal axis each have a tick of their own

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

_LINES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "D", "^", "x", "P", "*", "v", "p", "h")
_LEGEND_WIDTH = 96  # characters that fit into a line of the legend


@dataclass(frozen=True)
class Series:
    """One line of a plot.

    Args:
        name: What the legend calls it.
        x: Places, numbers or names.
        y: Heights; NaN leaves a gap.
        error: Half the length of an error bar at each place, NaN where there is none; or nothing.
        style: ``"lines"``, ``"markers"`` or ``"lines+markers"``.
        colour: Number of its colour and dash; by default its place in the plot.
        band: Whether the errors are a filled band along the line instead of bars.
    """

    name: str
    x: Sequence[float | str]
    y: Sequence[float]
    error: Sequence[float] | None = None
    style: str = "lines+markers"
    colour: int | None = None
    band: bool = False

    @property
    def bars(self) -> Sequence[float] | None:
        """The errors, if one of them can be drawn: single repetitions have none."""
        return None if self.error is None or all(map(math.isnan, self.error)) else self.error


@dataclass(frozen=True)
class Plot:
    """Lines over a common axis.

    Args:
        title: What it shows.
        summary: What there is to see, in words: it stands with the plot and is read to those who do not see it.
        x: Name of the horizontal axis.
        y: Name of the vertical axis.
        series: Lines.
        digits: Decimals in the table of figures.
        grouped: Whether points at one place stand beside each other instead of above each other.
        with_table: Whether the figures also stand in a table below, folded away.
        draw: Draws on the axes what are no series.
    """

    title: str
    summary: str
    x: str
    y: str
    series: Sequence[Series] = ()
    digits: int = 1
    grouped: bool = False
    with_table: bool = True
    draw: Callable[[Axes], Any] | None = None

    @property
    def names(self) -> list[str]:
        """The places along the horizontal axis where they are names, in their order; empty where they are numbers."""
        return list(dict.fromkeys(place for one in self.series for place in one.x if isinstance(place, str)))

    @property
    def ticks(self) -> list[float]:
        """The numbers along the horizontal axis, where they are few and far enough apart for a tick each."""
        places = sorted({place for one in self.series for place in one.x if not isinstance(place, str)})
        are_shared = self.with_table  # the points of a cloud have no places in common
        gaps = [after - before for before, after in pairwise(places)]
        are_apart = len(places) <= MAX_TICKS and min(gaps, default=0.0) >= sum(gaps) / (2 * MAX_TICKS)
        return places if are_shared and are_apart else []

    @property
    def table(self) -> Table | None:
        """The figures, a line for each series; None where they are too many, or not wanted."""
        places = list(dict.fromkeys(place for one in self.series for place in one.x))
        if not self.with_table or not places or len(places) > MAX_COLUMNS:
            return None
        rows = [Row(one.name, tuple(self._cell(one, place) for place in places)) for one in self.series]
        return Table(self.title, self.y, [f"{x:g}" if not isinstance(x, str) else x for x in places], rows)

    def _cell(self, series: Series, place: float | str) -> Cell:
        if place not in series.x:
            return Missing()
        at = list(series.x).index(place)
        if math.isnan(series.y[at]):
            return Missing()
        return Number(series.y[at], None if series.error is None else series.error[at], self.digits)

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
            for number, one in enumerate(self.series):
                self._draw(axes, one, number)
            if self.draw is not None:
                self.draw(axes)
            self._draw_axes(axes)
            if len(self.series) > 1:
                longest = max(len(printable(one.name)) for one in self.series) + 6
                columns = max(1, min(len(self.series), _LEGEND_WIDTH // longest))
                figure.legend(loc="outside lower left", ncols=columns, fontsize=9, frameon=False)
            stream = io.StringIO()
            figure.savefig(stream, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        return stream.getvalue()

    def _draw(self, axes: Axes, one: Series, number: int) -> None:
        shade = number if one.colour is None else one.colour
        colour = PALETTE[f"c{shade % 10}"][0]
        dash = _LINES[shade % len(_LINES)] if len(self.series) > 1 else "-"
        names = self.names
        places = [float(names.index(place)) if isinstance(place, str) else place for place in one.x]
        if self.grouped:
            places = [place + 0.8 * ((number + 0.5) / len(self.series) - 0.5) for place in places]
        if one.band and one.bars is not None:
            low, high = ([y + side * error for y, error in zip(one.y, one.bars, strict=True)] for side in (-1, 1))
            axes.fill_between(places, low, high, color=colour, alpha=0.16, linewidth=0)
        axes.errorbar(
            places,
            one.y,
            None if one.band else one.bars,
            label=printable(one.name),
            color=colour,
            linestyle=dash if "lines" in one.style else "none",
            marker=_MARKERS[shade % len(_MARKERS)] if "markers" in one.style else "none",
            markersize=4,
            linewidth=1.4,
            elinewidth=0.9,
        )

    def _draw_axes(self, axes: Axes) -> None:
        if names := list(map(printable, self.names)):
            turned = sum(map(len, names)) > _LEGEND_WIDTH
            axes.set_xticks(range(len(names)), names, rotation=35 if turned else 0, ha="right" if turned else "center")
        elif ticks := self.ticks:
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xlabel(printable(self.x))
        axes.set_ylabel(printable(self.y))
        axes.grid(axis="y", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
