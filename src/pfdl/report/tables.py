"""One definition of a table, from which its HTML and its Markdown are made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Number:
    """A measured figure.

    Args:
        value: The figure.
        error: What follows the ±, or None; NaN where one measurement gives none.
        digits: Decimals to print.
        signed: Whether a plus is printed.
        strong: Whether it stands out.
        remark: Words that follow it.
    """

    value: float
    error: float | None = None
    digits: int = 1
    signed: bool = False
    strong: bool = False
    remark: str = ""

    @property
    def printed(self) -> str:
        """The figure with a proper minus."""
        return f"{self.value:{'+' if self.signed else ''}.{self.digits}f}".replace("-", "−")

    @property
    def printed_error(self) -> str:
        """What follows the ±; empty where there is none."""
        return "" if self.error is None or math.isnan(self.error) else f"{self.error:.{self.digits}f}"

    def __str__(self) -> str:
        return f"{self.printed} ± {self.printed_error}" if self.printed_error else self.printed


@dataclass(frozen=True)
class Missing:
    """A cell without a figure: a dash to the eye, and to a screen reader the reason."""

    reason: str = "not run"

    def __str__(self) -> str:
        return self.reason


Cell = str | Number | Missing


@dataclass(frozen=True)
class Row:
    """A line of a table.

    Args:
        header: What it is about.
        cells: One for each column.
        quiet: Whether it stands in the background: figures of others beside ours.
    """

    header: str
    cells: tuple[Cell, ...]
    quiet: bool = False


@dataclass(frozen=True)
class Table:
    """A table with a header to every row and column.

    Args:
        caption: What it shows.
        corner: Header of the column of row headers.
        columns: Headers of the other columns.
        rows: Lines.
        note: A remark below it.
        error_name: What follows a ±; it is said below the table.

    Raises:
        ValueError: If a row has more or fewer cells than there are columns.
    """

    caption: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[Row]
    note: str = ""
    error_name: str = "standard error"

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"the row {row.header!r} has {len(row.cells)} cells for {len(self.columns)} columns.")

    @property
    def notes(self) -> list[str]:
        """What is said below the table: what a ± means, where there is one, and the remark."""
        has_errors = any(isinstance(cell, Number) and cell.printed_error for row in self.rows for cell in row.cells)
        return [*([f"± {self.error_name}."] if has_errors else []), *([self.note] if self.note else [])]
