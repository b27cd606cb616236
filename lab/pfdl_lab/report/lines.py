"""Lines over a common axis: from one list of them a plot and the table of its figures are made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from pfdl._internal.text import printable
from pfdl.report.page import PALETTE
from pfdl_lab.report.blocks import Cell, Missing, Number, Plot, Table, TableLine

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_COLUMNS = 40  # a table with more is not shown; the run folder has the figures
MAX_TICKS = 12  # up to so many numbers on the horizontal axis each have a tick of their own
_DASHES = ("-", "--", ":", "-.")
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
        style: ``"lines"``, ``"markers"``, ``"lines+markers"``; or ``"level"``, a black bar across
            that place.
        colour: Number of its colour and dash; by default its place in the plot.
    """

    name: str
    x: Sequence[float | str]
    y: Sequence[float]
    error: Sequence[float] | None = None
    style: str = "lines+markers"
    colour: int | None = None

    @property
    def bars(self) -> Sequence[float] | None:
        """The errors, if one of them can be drawn: single repetitions have none."""
        return None if self.error is None or all(map(math.isnan, self.error)) else self.error


def plot_lines(
    title: str,
    summary: str,
    x: str,
    y: str,
    lines: Sequence[Series | None],
    digits: int = 1,
    *,
    is_grouped: bool = False,
    is_cloud: bool = False,
) -> list[Plot]:
    """Return one plot of lines, with a table of their figures; none without any line.

    Args:
        title: What it shows.
        summary: What there is to see, in words.
        x: Name of the horizontal axis.
        y: Name of the vertical axis.
        lines: The lines; None for one that has no figures.
        digits: Decimals in the table.
        is_grouped: Whether points at one place stand beside each other instead of above each other.
        is_cloud: Whether the points have no places in common, so that there is no table of them.
    """
    series = [line for line in lines if line is not None]
    if not series:
        return []
    names = [place for place in _places(series) if isinstance(place, str)]

    def draw(axes: Axes) -> None:
        for number, one in enumerate(series):
            is_beside = is_grouped and one.style != "level"
            shift = 0.8 * ((number + 0.5) / len(series) - 0.5) if is_beside else 0.0
            _draw(
                axes,
                one,
                number,
                [place + shift for place in _numbers(one, names)],
                is_alone=len(series) == 1,
            )
        _set_ticks(axes, names, [] if is_cloud else ticks_at(series))
        axes.set_xlabel(printable(x))
        axes.set_ylabel(printable(y))
        if len(series) > 1:
            longest = max(len(printable(one.name)) for one in series) + 6
            columns = max(1, min(len(series), _LEGEND_WIDTH // longest))
            figure = axes.get_figure(root=True)
            assert figure is not None  # these axes were made with one
            figure.legend(loc="outside lower left", ncols=columns, fontsize=9, frameon=False)

    return [Plot(title, summary, draw, None if is_cloud else _table(title, y, series, digits))]


def ticks_at(series: Sequence[Series]) -> list[float]:
    """Return the numbers along the horizontal axis, where they are few and far enough apart for a
    tick each.
    """
    places = sorted(place for place in _places(series) if not isinstance(place, str))
    gaps = [after - before for before, after in pairwise(places)]
    are_apart = len(places) <= MAX_TICKS and min(gaps, default=0.0) >= sum(gaps) / (2 * MAX_TICKS)
    return places if are_apart else []


def _numbers(one: Series, names: list[str]) -> list[float]:
    return [float(names.index(place)) if isinstance(place, str) else place for place in one.x]


def _places(series: Sequence[Series]) -> list[float | str]:
    """Return all places of some lines, each once, in their order."""
    return list(dict.fromkeys(chain.from_iterable(one.x for one in series)))


def _draw(axes: Axes, one: Series, number: int, places: list[float], *, is_alone: bool) -> None:
    shade = number if one.colour is None else one.colour
    dash = "-" if is_alone else _DASHES[shade % len(_DASHES)]
    axes.errorbar(
        places,
        one.y,
        one.bars,
        0.45 if one.style == "level" else None,
        label=printable(one.name),
        color=PALETTE["ink" if one.style == "level" else f"c{shade % 10}"],
        linestyle=dash if "lines" in one.style else "none",
        marker=_MARKERS[shade % len(_MARKERS)] if "markers" in one.style else "none",
        markersize=4,
        linewidth=1.4,
        elinewidth=0.9,
    )


def _set_ticks(axes: Axes, names: Sequence[str], ticks: Sequence[float]) -> None:
    if names:
        shown = list(map(printable, names))
        turned = sum(map(len, shown)) > _LEGEND_WIDTH
        axes.set_xticks(
            range(len(shown)),
            shown,
            rotation=35 if turned else 0,
            ha="right" if turned else "center",
        )
    elif ticks:
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])


def _table(title: str, corner: str, series: Sequence[Series], digits: int) -> Table | None:
    """Return the figures, a line for each series; None where they are too many."""
    places = _places(series)
    if not places or len(places) > MAX_COLUMNS:
        return None
    rows = []
    for one in series:
        cells = tuple(_cell(one, place, digits) for place in places)
        rows.append(TableLine(one.name, cells))
    return Table(title, corner, [f"{x:g}" if not isinstance(x, str) else x for x in places], rows)


def _cell(series: Series, place: float | str, digits: int) -> Cell:
    if place not in series.x:
        return Missing()
    at = list(series.x).index(place)
    if math.isnan(series.y[at]):
        return Missing()
    return Number(series.y[at], None if series.error is None else series.error[at], digits)
