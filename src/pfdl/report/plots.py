"""One definition of a plot, from which its drawing, its description and the table of its figures are made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pfdl.report.tables import Cell, Missing, Number, Row, Table

MAX_COLUMNS = 40
"""A table with more columns than this is not shown; the run folder has the figures."""

MAX_TICKS = 12
"""Up to so many numbers on the horizontal axis each have a tick of their own."""


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
        labels: What each point is called when the pointer rests on it; by default the name of the series.
        band: Whether the errors are a filled band along the line instead of bars.
    """

    name: str
    x: Sequence[float | str]
    y: Sequence[float]
    error: Sequence[float] | None = None
    style: str = "lines+markers"
    colour: int | None = None
    labels: Sequence[str] | None = None
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
        summary: What there is to see, in words: it stands below the plot and is read to those who do not see it.
        x: Name of the horizontal axis.
        y: Name of the vertical axis.
        series: Lines.
        digits: Decimals in hover texts and in the table of figures.
        log_x: Whether the horizontal axis is logarithmic.
        grouped: Whether points at one place stand beside each other instead of above each other.
        with_table: Whether the figures also stand in a table below, folded away.
    """

    title: str
    summary: str
    x: str
    y: str
    series: Sequence[Series]
    digits: int = 1
    log_x: bool = False
    grouped: bool = False
    with_table: bool = True

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
        return places if self.log_x or (are_shared and are_apart) else []

    @property
    def drawing(self) -> dict[str, Any]:
        """What ``templates/plots.js`` draws. It has no colours: those are the page's."""
        return {
            "x": self.x,
            "y": self.y,
            "digits": self.digits,
            "log": self.log_x,
            "grouped": self.grouped,
            "names": self.names,
            "ticks": self.ticks,
            "series": [self._drawn(number, one) for number, one in enumerate(self.series)],
        }

    def _drawn(self, number: int, series: Series) -> dict[str, Any]:
        return {
            "name": series.name,
            "x": list(series.x),
            "y": [None if math.isnan(y) else y for y in series.y],
            "error": None if series.bars is None else [0.0 if math.isnan(one) else one for one in series.bars],
            "band": series.band,
            "style": series.style,
            "colour": number if series.colour is None else series.colour,
            "labels": None if series.labels is None else list(series.labels),
        }

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
