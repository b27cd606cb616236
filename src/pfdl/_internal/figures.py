"""Figures on disk: the same figure is the same file, byte for byte."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from pfdl._internal.files import write_bytes_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_figure(figure: Figure, path: Path, *, dpi: float) -> None:
    """Write a figure, whole or not at all, and without what changes from one run to the next.

    Matplotlib names the parts of an SVG file at random and writes the time into it, so that a resumed run would end
    with another file than an uninterrupted one.

    Args:
        figure: The figure.
        path: Where it goes; the ending says the format, ``.png`` or ``.svg``.
        dpi: Dots per inch.

    Raises:
        OSError: If it cannot be written; then the old file is there still.
    """
    import matplotlib

    kind = path.suffix.removeprefix(".")
    drawn = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "pfdl"}):
        figure.savefig(drawn, format=kind, dpi=dpi, metadata={"Date": None} if kind == "svg" else None)
    write_bytes_atomically(path, drawn.getvalue())
