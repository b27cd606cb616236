"""The HTML page: a shell, its style and its script, all in one file that needs nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pfdl.report.blocks import Block, Page
from pfdl.report.tables import Missing, Number


def render(page: Page) -> str:
    """Return the page as one HTML file. All content is text: nothing that a name or a cell holds is read as HTML."""
    scripts = [_asset("plots.js"), _asset("page.js")]
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            style=Markup(_asset("page.css")),
            scripts=[Markup(script) for script in scripts],
            # The page may run these scripts and no other, and may ask nothing of the network.
            script_sources=" ".join(f"'sha256-{_digest(script)}'" for script in scripts),
        )
    )


def _kind(block: Block | Number | Missing) -> str:
    return type(block).__name__


@cache
def _environment() -> Environment:
    loader = PackageLoader("pfdl.report", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["kind"] = _kind
    return environment


def _asset(name: str) -> str:
    return (files("pfdl.report") / "templates" / name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
