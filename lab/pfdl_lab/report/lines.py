"""Lines over a common axis: a plot, and the table of its figures, from the same cells."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from pfdl._internal.text import printable
from pfdl.report.page import PALETTE
from pfdl_lab.report.blocks import Cell, Missing, Number, Plot, Table, TableLine

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_COLUMNS = 40  # a table with more is not shown; the run folder has the figures
MAX_MARKED = 20  # with more places a line has no markers
_DASHES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "D", "^", "x", "P", "*", "v", "p", "h")
_LEGEND_WIDTH = 96  # characters that fit into a line of the legend


def plot_lines(
    title: str,
    summary: str,
    x: str,
    y: str,
    lines: Mapping[str, Mapping[Any, Cell]],
    *,
    is_grouped: bool = False,
) -> list[Plot]:
    """Return one plot of lines, with a table of their figures; none without any figure.

    Args:
        title: What it shows.
        summary: What there is to see, in words.
        x: Name of the horizontal axis.
        y: Name of the vertical axis.
        lines: By their names, the cells of each line by their places, which are epochs or words.
        is_grouped: Whether the places are apart from each other: then points at one place stand
            beside each other, without a line.
    """
    known = {name: _figures(line) for name, line in lines.items()}
    places = list(dict.fromkeys(chain.from_iterable(known.values())))
    if not places:
        return []

    def draw(axes: Axes) -> None:
        axes.set_xlabel(printable(x))
        axes.set_ylabel(printable(y))
        _draw(axes, known, places, is_grouped=is_grouped)
        _draw_legend(axes)

    rows = []
    for name, line in known.items():
        rows.append(TableLine(name, tuple(line.get(place, Missing()) for place in places)))
    table = Table(title, y, list(map(str, places)), rows) if len(places) <= MAX_COLUMNS else None
    return [Plot(title, summary, draw, table)]


def _draw(
    axes: Axes, lines: Mapping[str, dict[Any, Number]], places: list[Any], *, is_grouped: bool
) -> None:
    """Draw the lines; places that are words stand at even distances."""
    at = {place: place for place in places}
    if isinstance(places[0], str):
        at = {place: number for number, place in enumerate(places)}
        turned = sum(map(len, places)) > _LEGEND_WIDTH
        axes.set_xticks(range(len(places)), list(map(printable, places)), rotation=35 * turned)
    else:
        axes.locator_params(axis="x", integer=True)
    for number, (name, line) in enumerate(lines.items()):
        shift = 0.8 * ((number + 0.5) / len(lines) - 0.5) if is_grouped else 0.0
        axes.errorbar(
            [shift + at[place] for place in line],
            [figure.value for figure in line.values()],
            [math.nan if one.error is None else one.error for one in line.values()],
            label=printable(name) if line else None,
            color=PALETTE[f"c{number % 10}"],
            linestyle="none" if is_grouped else _DASHES[number % len(_DASHES)],
            marker=_MARKERS[number % len(_MARKERS)] if len(places) <= MAX_MARKED else "none",
            markersize=4,
            linewidth=1.4,
            elinewidth=0.9,
        )


def _figures(line: Mapping[Any, Cell]) -> dict[Any, Number]:
    return {
        place: cell
        for place, cell in line.items()
        if isinstance(cell, Number) and not math.isnan(cell.value)
    }


def _draw_legend(axes: Axes) -> None:
    """Name the lines below the axes, if there are several."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        longest = max(map(len, labels)) + 6
        columns = max(1, min(len(labels), _LEGEND_WIDTH // longest))
        figure = axes.get_figure(root=True)
        assert figure is not None  # these axes were made with one
        figure.legend(
            handles, labels, loc="outside lower left", ncols=columns, fontsize=9, frameon=False
        )
