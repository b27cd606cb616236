"""The HTML page: a shell and its style in one file that needs nothing from elsewhere and runs no script."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pfdl.report.blocks import PALETTE, Block, Missing, Number, Page, Plot


def render(page: Page) -> str:
    """Return the page as one HTML file. All content is text: nothing that a name or a cell holds is read as HTML."""
    colours = "".join(f"--{name}: light-dark({light}, {dark}); " for name, (light, dark) in PALETTE.items())
    style = (files("pfdl.report") / "templates" / "page.css").read_text(encoding="utf-8")
    return _environment().get_template("page.html").render(page=page, style=Markup(f":root {{ {colours}}}\n{style}"))


def _inline(plot: Plot, prefix: str) -> Markup:
    """Return the picture of a plot as part of the page: in its colours, with ids of its own.

    Matplotlib escapes the names in it, as any writer of XML does.
    """
    svg = plot.svg()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'( id="|(?:xlink:)?href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    for name, (light, _) in PALETTE.items():
        svg = svg.replace(light, f"var(--{name})")
    return Markup(svg)


def _kind(block: Block | Number | Missing) -> str:
    return type(block).__name__


@cache
def _environment() -> Environment:
    loader = PackageLoader("pfdl.report", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["kind"] = _kind
    environment.filters["inline"] = _inline
    return environment
