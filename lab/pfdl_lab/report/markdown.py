"""Sections as Markdown: the same tables as on the HTML page, and the plots as pictures beside the
file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.markdown import Markdown as RichMarkdown

from pfdl._internal.files import write_atomically
from pfdl_lab.report.blocks import (
    Block,
    Cell,
    Gallery,
    Heading,
    Listing,
    Number,
    Plot,
    Section,
    SideBySide,
    Table,
    Text,
)


class Markdown(NamedTuple):
    """A text, and the bytes of each picture that it shows, by its name: plots are SVG, photographs
    PNG.
    """

    text: str
    pictures: Mapping[str, bytes]

    def write(self, path: Path) -> list[Path]:
        """Write the file and its pictures, which lie in the same folder; return them."""
        for name, content in self.pictures.items():
            write_atomically(path.parent / name, content)
        write_atomically(path, self.text)
        return [path, *(path.parent / name for name in self.pictures)]


def render(sections: Sequence[Section], *, level: int = 1, prefix: str = "") -> Markdown:
    """Return sections as Markdown, without their findings: a person writes those above the mark of
    a page.

    Args:
        sections: What to show.
        level: Level of a section's heading.
        prefix: How the names of the pictures begin.

    Returns:
        The text, and the pictures it refers to.
    """
    pictures: dict[str, bytes] = {}
    parts: list[str] = []
    for section in sections:
        parts.append(f"{'#' * level} {section.title}")
        for block in section.blocks:
            parts += _show(block, level + 1, prefix, pictures)
    return Markdown("\n\n".join(parts) + "\n", pictures)


def _show(block: Block, level: int, prefix: str, pictures: dict[str, bytes]) -> list[str]:
    def picture(title: str, ending: str, content: bytes, alt: str) -> str:
        short = title.partition(",")[0]
        name = re.sub("[^a-z0-9]+", "-", f"{prefix}{short}".lower()).strip("-")
        number = sum(
            re.fullmatch(rf"{name}(-\d+)?\.{ending}", other) is not None for other in pictures
        )
        pictures[f"{name}-{number + 1}.{ending}" if number else f"{name}.{ending}"] = content
        return f"![{alt}]({list(pictures)[-1]})"

    match block:
        case Text():
            return [f"> {block.text}" if block.tone else block.text]
        case Heading():
            return [f"{'#' * level} {block.text}"]
        case Table():
            return [f"**{block.caption}**", _table(block), *block.notes]
        case Plot():
            return [
                picture(block.title, "svg", block.svg().encode(), block.title),
                f"*{block.title}.* {block.summary}",
            ]
        case SideBySide():
            parts = [_show(inner, level, prefix, pictures) for inner in block.blocks]
            return list(chain.from_iterable(parts))
        case Gallery():
            shown = [picture(one.alt, "png", one.png, one.alt) for one in block.pictures]
            return [f"*{block.title}*", *shown]
        case Listing():
            return [f"**{block.title}**", f"```\n{block.text}\n```"]


def print_table(table: Table) -> None:
    """Print a table on standard output, under its caption; where the output is piped, as
    Markdown.
    """
    _print("\n\n".join(_show(table, 1, "", {})))


def print_section(section: Section) -> None:
    """Print the words and tables of a section; its plots are on the pages that a file holds."""
    printed = [f"# {section.title}"]
    for block in section.blocks:
        if isinstance(block, Text | Heading | Table):
            printed += _show(block, 2, "", {})
    _print("\n\n".join(printed))


def _print(text: str) -> None:
    console = Console()
    if console.is_terminal:
        console.print(RichMarkdown(text))
    else:
        print(f"{text}\n")


def _table(table: Table) -> str:
    lines = [
        [f"*{row.header}*" if row.quiet else row.header, *map(_cell, row.cells)]
        for row in table.rows
    ]
    return markdown_table([table.corner, *table.columns], lines)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table as Markdown.

    ``DataFrame.to_markdown`` needs one more package, escapes no ``|``, and pads cells, so that one
    figure changes all lines of a page.
    """
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(map(_line, lines))


def _line(cells: Sequence[object]) -> str:
    escaped = [str(cell).replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def _cell(cell: Cell) -> str:
    if not isinstance(cell, Number):
        return str(cell)
    figure = f"**{cell}**" if cell.strong else str(cell)
    return f"{figure}, {cell.remark}" if cell.remark else figure
