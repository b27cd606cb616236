"""Sections as Markdown: the same tables as on the HTML page, and the plots as pictures beside the
file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.markdown import Markdown as RichMarkdown

from pfdl._internal.files import write_atomically
from pfdl_lab.report.blocks import (
    Cell,
    Heading,
    Listing,
    Number,
    Plot,
    Section,
    Table,
    Text,
)


class Markdown(NamedTuple):
    """A text, and the SVG file of each plot that it shows, by its name."""

    text: str
    pictures: Mapping[str, str]

    def write(self, path: Path) -> list[Path]:
        """Write the file and its pictures, which lie in the same folder; return them."""
        for name, content in self.pictures.items():
            write_atomically(path.parent / name, content)
        write_atomically(path, self.text)
        return [path, *(path.parent / name for name in self.pictures)]


def render(sections: Sequence[Section], *, prefix: str = "") -> Markdown:
    """Return sections as Markdown.

    Args:
        sections: What to show.
        prefix: How the names of the pictures begin.

    Returns:
        The text, and the pictures it refers to.
    """
    pictures: dict[str, str] = {}
    parts: list[str] = []
    for section in sections:
        parts.append(f"# {section.title}")
        for block in section.blocks:
            if isinstance(block, Plot):
                name = _free_name(f"{prefix}{block.title.partition(',')[0]}", pictures)
                pictures[name] = block.svg()
                parts += [f"![{block.title}]({name})", f"*{block.title}.* {block.summary}"]
            else:
                parts += _show(block)
    return Markdown("\n\n".join(parts) + "\n", pictures)


def _free_name(title: str, taken: Mapping[str, str]) -> str:
    stem = re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")
    names = (f"{stem}.svg", *(f"{stem}-{number}.svg" for number in range(2, len(taken) + 2)))
    return next(name for name in names if name not in taken)


def _show(block: Text | Heading | Table | Listing) -> list[str]:
    match block:
        case Text():
            return [f"> {block.text}" if block.tone else block.text]
        case Heading():
            return [f"## {block.text}"]
        case Table():
            return [f"**{block.caption}**", _table(block), *block.notes]
        case Listing():
            return [f"**{block.title}**", f"```\n{block.text}\n```"]


def print_table(table: Table) -> None:
    """Print a table on standard output, under its caption; where the output is piped, as
    Markdown.
    """
    _print("\n\n".join(_show(table)))


def print_section(section: Section) -> None:
    """Print the words and tables of a section; its plots are on the pages that a file holds."""
    printed = [f"# {section.title}"]
    for block in section.blocks:
        if isinstance(block, Text | Heading | Table):
            printed += _show(block)
    _print("\n\n".join(printed))


def _print(text: str) -> None:
    console = Console()
    if console.is_terminal:
        console.print(RichMarkdown(text))
    else:
        print(f"{text}\n")


def _table(table: Table) -> str:
    """Return a table as Markdown.

    ``DataFrame.to_markdown`` needs one more package, escapes no ``|``, and pads cells.
    """
    columns = [table.corner, *table.columns]
    lines = [columns, ["---"] * len(columns)]
    for row in table.rows:
        header = f"*{row.header}*" if row.quiet else row.header
        lines.append([header, *map(_cell, row.cells)])
    return "\n".join(map(_line, lines))


def _line(cells: Sequence[str]) -> str:
    escaped = [cell.replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def _cell(cell: Cell) -> str:
    if not isinstance(cell, Number):
        return str(cell)
    figure = f"**{cell}**" if cell.strong else str(cell)
    return f"{figure}, {cell.remark}" if cell.remark else figure
