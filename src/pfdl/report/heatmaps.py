"""A matrix as a picture."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go


@dataclass(frozen=True, eq=False)
class Heatmap:
    """A square matrix of shares between 0 and 1, drawn from the colour of the page to that of its ink.

    Args:
        title: What it shows.
        summary: What there is to see, in words: it stands below the title and is read to those who do not see it.
        values: Shape (v, v); NaN leaves a hole.
        names: What the rows, and as well the columns, are called when the pointer rests on them.
        frames: First and last row of blocks to be framed.
    """

    title: str
    summary: str
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    names: Sequence[str]
    frames: Sequence[tuple[int, int]] = ()

    table: None = None
    """There are too many figures for a table; the template asks."""

    @property
    def drawing(self) -> dict[str, Any]:
        """What Plotly draws; the page adds the colours."""
        names = [html.escape(name) for name in self.names]
        trace = go.Heatmap(
            z=[[round(value, 3) for value in row] for row in self.values.tolist()],
            zmin=0,
            zmax=1,
            x=names,
            y=names,
            hovertemplate="%{y}<br>%{x}<br><b>%{z:.2f}</b><extra></extra>",
            colorbar={"thickness": 10, "outlinewidth": 0, "len": 0.9},
        )
        axis = {"type": "category", "showticklabels": False, "showgrid": False, "ticks": ""}
        corners = ({"x0": a - 0.5, "y0": a - 0.5, "x1": b + 0.5, "y1": b + 0.5} for a, b in self.frames)
        layout = go.Layout(
            xaxis={**axis, "constrain": "domain"},
            yaxis={**axis, "autorange": "reversed", "scaleanchor": "x", "constrain": "domain"},
            shapes=[{"type": "rect", **corner, "line": {"width": 1, "color": "#c8442b"}} for corner in corners],
            meta={"square": True},
        )
        drawing: dict[str, Any] = json.loads(go.Figure([trace], layout).to_json())
        drawing["layout"].pop("template", None)
        return drawing
