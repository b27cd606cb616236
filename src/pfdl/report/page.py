"""The HTML page: pieces and a shell in one file that needs nothing from elsewhere and runs no
script.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TEMPLATES = Path(__file__).parent / "templates"

STYLE = (_TEMPLATES / "page.css").read_text(encoding="utf-8")

PALETTE = dict(re.findall(r"--(\w+): light-dark\((#\w+),", STYLE))
"""Colours of pages and plots by their names in the style sheet, in light. A page exchanges them in
the dark.
"""

_environment = Environment(
    loader=FileSystemLoader(_TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)

blocks: Any = _environment.get_template("blocks.html").module
"""What a page is made of: ``blocks.text(words)``, ``blocks.table(…)`` and the other macros of
``blocks.html``.
"""

reading: Any = _environment.get_template("reading.html").module
"""How to read each of the pages."""


def render(
    title: str,
    introduction: Sequence[Markup],
    sections: Sequence[tuple[str, Sequence[Markup]]],
    footer: str = "",
) -> str:
    """Return a page as one HTML file. All content is text: nothing that a name or a cell holds is
    read as HTML.

    Args:
        title: Its name.
        introduction: Blocks before the first section.
        sections: The heading and the blocks of each section; the list of contents names them.
        footer: The last line.
    """
    content = {"title": title, "introduction": introduction, "sections": sections, "footer": footer}
    return _environment.get_template("page.html").render(style=Markup(STYLE), **content)


def figure(value: float, digits: int = 1, *, missing: str) -> Markup:
    """Return a cell with a figure and a proper minus; one that says why it is missing for NaN."""
    if math.isnan(value):
        return Markup(blocks.missing(missing))
    return Markup(blocks.number(f"{value:.{digits}f}".replace("-", "−")))


def draw_svg(draw: Callable[[Axes], Any]) -> str:
    """Draw a plot by Matplotlib as an SVG file. The same plot gives the same file; names in it are
    mere text.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(fname=str(_TEMPLATES / "plot.mplstyle")):
        picture = Figure()
        draw(picture.subplots())
        stream = io.StringIO()
        picture.savefig(
            stream, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    return stream.getvalue()


def inline(svg: str, prefix: str) -> Markup:
    """Return a picture as part of the page: in its colours, with ids of its own.

    Matplotlib escapes the names in it, as any writer of XML does.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'( id="|(?:xlink:)?href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    for name, light in PALETTE.items():
        svg = svg.replace(light, f"var(--{name})")
    return Markup(svg)
