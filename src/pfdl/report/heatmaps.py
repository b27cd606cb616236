"""A matrix as a picture."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


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
        """What ``templates/plots.js`` draws: a byte for each cell, from 0 to 254, and 255 for a hole."""
        cells = np.where(np.isnan(self.values), 255, np.rint(254 * self.values.clip(0, 1))).astype(np.uint8)
        return {
            "kind": "heatmap",
            "size": len(cells),
            "values": base64.b64encode(cells.tobytes()).decode(),
            "names": list(self.names),
            "frames": [list(frame) for frame in self.frames],
        }
