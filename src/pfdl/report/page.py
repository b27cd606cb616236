"""The HTML page: a shell, its style and its script, all in one file that needs nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from pfdl.report.heatmaps import Heatmap, SideBySide
from pfdl.report.plots import Plot
from pfdl.report.tables import Missing, Number, Table


@dataclass(frozen=True)
class Text:
    """A paragraph.

    Args:
        text: Its words, shown as they stand.
        tone: ``""``; ``"warning"`` for what went wrong; ``"yes"``, ``"no"`` or ``"unclear"`` for an answer, in red,
            green or grey; ``"command"`` for what to type.
    """

    text: str
    tone: str = ""


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Listing:
    """Text set as it stands, folded away under a title."""

    title: str
    text: str


@dataclass(frozen=True)
class Facts:
    """Names and their values, folded away under a title."""

    title: str
    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Thumbnail:
    """A small picture.

    Args:
        png: The bytes of a PNG file.
        alt: What it shows, for those who do not see it.
        caption: What stands below it.
    """

    png: bytes
    alt: str
    caption: str = ""

    @property
    def address(self) -> str:
        """The picture itself, as an address."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


@dataclass(frozen=True)
class Gallery:
    """Small pictures in a row that wraps."""

    title: str
    pictures: Sequence[Thumbnail]


Block = Text | Heading | Table | Plot | Heatmap | SideBySide | Listing | Facts | Gallery


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Args:
        title: Its heading, which the list of contents names.
        blocks: What it holds.
        finding: What the reader should take home; it also stands at the top of the page.
    """

    title: str
    blocks: Sequence[Block] = ()
    finding: str = ""


@dataclass(frozen=True)
class Page:
    """A whole page.

    Args:
        title: Its name.
        introduction: Blocks before the first section.
        sections: Parts.
        footer: The last line.
    """

    title: str
    introduction: Sequence[Block]
    sections: Sequence[Section]
    footer: str = ""


def render(page: Page) -> str:
    """The page as one HTML file. Whatever is in it is text: nothing that a name or a cell holds is read as HTML."""
    scripts = [_asset("page.js")]
    if any(isinstance(block, Plot | Heatmap | SideBySide) for section in page.sections for block in section.blocks):
        scripts.insert(0, get_plotlyjs())
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
