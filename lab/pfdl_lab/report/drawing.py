"""Draw a plot as a PNG file, for Markdown pages.

The page draws its plots in the browser; this is Matplotlib, from the same :class:`~pfdl.report.plots.Plot`.
"""

from __future__ import annotations

import io

from matplotlib.figure import Figure

from pfdl.report.plots import Plot

_LINES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "D", "^", "x", "P", "*", "v", "p", "h")


def draw(plot: Plot) -> bytes:
    """Return the drawing of a plot as the bytes of a PNG file."""
    figure = Figure(figsize=(8.0, 4.4), layout="constrained")
    axis = figure.subplots()
    names = plot.names
    for number, one in enumerate(plot.series):
        colour = number if one.colour is None else one.colour
        places = [names.index(place) if isinstance(place, str) else place for place in one.x]
        if plot.grouped:
            places = [place + 0.8 * ((number + 0.5) / len(plot.series) - 0.5) for place in places]
        if one.band and one.bars is not None:
            axis.fill_between(
                places,
                [y - error for y, error in zip(one.y, one.bars, strict=True)],
                [y + error for y, error in zip(one.y, one.bars, strict=True)],
                color=f"C{colour % 10}",
                alpha=0.15,
                linewidth=0,
            )
        axis.errorbar(
            places,
            one.y,
            None if one.band else one.bars,
            label=one.name,
            color=f"C{colour % 10}",
            linestyle=_LINES[colour % len(_LINES)] if "lines" in one.style else "none",
            marker=_MARKERS[colour % len(_MARKERS)] if "markers" in one.style else "none",
            markersize=4,
            linewidth=1.4,
            capsize=2,
        )
    if plot.log_x:
        axis.set_xscale("log")
    if names:
        turned = max(map(len, names)) > 12
        axis.set_xticks(range(len(names)), names, rotation=30 if turned else 0, ha="right" if turned else "center")
    elif ticks := plot.ticks:
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
    axis.set_xlabel(plot.x)
    axis.set_ylabel(plot.y)
    axis.grid(axis="y", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    if len(plot.series) > 1:
        figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    stream = io.BytesIO()
    figure.savefig(stream, dpi=110, metadata={"Software": None})
    return stream.getvalue()
