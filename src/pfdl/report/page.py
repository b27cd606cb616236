"""The HTML page: pieces and a shell in one file that needs nothing from elsewhere and runs no script."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

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

_environment = Environment(
    loader=PackageLoader("pfdl.report", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)

blocks: Any = _environment.get_template("blocks.html").module
"""What a page is made of: ``blocks.text(words)``, ``blocks.table(…)`` and the other macros of ``blocks.html``."""


def render(
    title: str, introduction: Sequence[Markup], sections: Sequence[tuple[str, Sequence[Markup]]], footer: str = ""
) -> str:
    """Return a page as one HTML file. All content is text: nothing that a name or a cell holds is read as HTML.

    Args:
        title: Its name.
        introduction: Blocks before the first section.
        sections: The heading and the blocks of each section; the list of contents names them.
        footer: The last line.
    """
    colours = "".join(f"--{name}: light-dark({light}, {dark}); " for name, (light, dark) in PALETTE.items())
    style = (files("pfdl.report") / "templates" / "page.css").read_text(encoding="utf-8")
    content = {"title": title, "introduction": introduction, "sections": sections, "footer": footer}
    return _environment.get_template("page.html").render(style=Markup(f":root {{ {colours}}}\n{style}"), **content)


def figure(value: float, digits: int = 1, *, missing: str) -> Markup:
    """Return a cell with a figure and a proper minus; one that says why it is missing for NaN."""
    if math.isnan(value):
        return Markup(blocks.missing(missing))
    return Markup(blocks.number(f"{value:.{digits}f}".replace("-", "−")))


def draw_svg(draw: Callable[[Axes], Any]) -> str:
    """Draw a plot by Matplotlib as an SVG file. The same plot gives the same file; names in it are mere text."""
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
        picture = Figure(figsize=(6.8, 4.0), layout="constrained")
        axes = picture.subplots()
        draw(axes)
        axes.grid(axis="y", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
        stream = io.StringIO()
        picture.savefig(stream, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return stream.getvalue()


def inline(svg: str, prefix: str) -> Markup:
    """Return a picture as part of the page: in its colours, with ids of its own.

    Matplotlib escapes the names in it, as any writer of XML does.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'( id="|(?:xlink:)?href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    for name, (light, _) in PALETTE.items():
        svg = svg.replace(light, f"var(--{name})")
    return Markup(svg)
