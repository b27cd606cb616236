"""What a page is made of. The same blocks become HTML (:mod:`pfdl.report.page`) and, in the laboratory, Markdown."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pfdl.report.plots import Plot
from pfdl.report.tables import Table


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


@dataclass(frozen=True)
class SideBySide:
    """Blocks next to each other, or one below the other where the page is narrow."""

    blocks: Sequence[Block]


Block = Text | Heading | Table | Plot | SideBySide | Listing | Gallery


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Args:
        title: Its heading, which the list of contents names.
        blocks: What it holds.
        finding: One sentence on what was found. It also stands at the top of a page of several sections, and
            ``pfdl demo`` prints it.
    """

    title: str
    blocks: Sequence[Block] = ()
    finding: str = ""

    def flat(self) -> Iterator[Block]:
        """Yield the blocks one by one, those that stand side by side too."""
        for block in self.blocks:
            yield from block.blocks if isinstance(block, SideBySide) else (block,)


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
