"""One definition of a table, from which its HTML, Markdown, LaTeX and CSV are made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from pfdl._internal.text import spreadsheet_cell

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        **{character: f"\\{character}" for character in "&%$#_"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "\n": " ",
        **{"±": r"$\pm$", "−": "$-$", "×": r"$\times$", "→": r"$\to$", "←": r"$\gets$", "⊥": r"$\perp$"},
        **{"²": r"\textsuperscript{2}", "·": r"$\cdot$", "≥": r"$\ge$", "≤": r"$\le$", "–": "--", "…": r"\ldots{}"},
        **{"β": r"$\beta$", "λ": r"$\lambda$"},
    }
)


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
        error_name: What follows a ±, for the CSV file, which has a column for it.
        wide: Whether cells that are not numbers are words that may wrap, rather than published figures.

    Raises:
        ValueError: If a row has more or fewer cells than there are columns.
    """

    caption: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[Row]
    note: str = ""
    error_name: str = "standard error"
    wide: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"the row {row.header!r} has {len(row.cells)} cells for {len(self.columns)} columns.")

    def has_words(self, place: int) -> bool:
        """Return whether the cells of a column are words, which are set from the left and may wrap."""
        return self.wide and any(isinstance(row.cells[place], str) for row in self.rows)

    @property
    def csv(self) -> str:
        """As comma-separated values with all decimals; a missing cell is empty, and an error has its own column.

        No text in it is a formula to a spreadsheet.
        """
        columns = [[spreadsheet_cell(row.header) for row in self.rows]]
        header = [self.corner]
        for place, name in enumerate(self.columns):
            cells = [row.cells[place] for row in self.rows]
            header.append(name)
            columns.append([_csv_cell(cell) for cell in cells])
            errors = [cell.error if isinstance(cell, Number) and cell.printed_error else None for cell in cells]
            if any(error is not None for error in errors):
                header.append(f"{name} ({self.error_name})")
                columns.append(["" if error is None else f"{error:.6g}" for error in errors])
        frame = pd.DataFrame(dict(enumerate(columns)))
        return frame.to_csv(header=list(map(spreadsheet_cell, header)), index=False, lineterminator="\n")

    @property
    def latex(self) -> str:
        """As a LaTeX table; it needs the package booktabs."""
        lines = [[escape_latex(row.header), *map(_latex_cell, row.cells)] for row in self.rows]
        frame = pd.DataFrame(lines, columns=[escape_latex(name) for name in (self.corner, *self.columns)])
        alignment = "".join("l" if self.has_words(place) else "r" for place in range(len(self.columns)))
        text: str = frame.style.hide(axis="index").to_latex(
            hrules=True, position_float="centering", caption=escape_latex(self.caption), column_format=f"l{alignment}"
        )
        return text


def escape_latex(text: str) -> str:
    r"""Return text that LaTeX prints as it stands.

    Example:
        >>> print(escape_latex("50 % of β_V"))
        50 \% of $\beta$\_V
    """
    return text.translate(_LATEX)


def _latex_cell(cell: Cell) -> str:
    if isinstance(cell, Missing):
        return "--"
    if isinstance(cell, str):
        return escape_latex(cell)
    value = cell.printed.replace("−", "-")
    figure = f"${value} \\pm {cell.printed_error}$" if cell.printed_error else f"${value}$"
    figure = rf"\textbf{{{figure}}}" if cell.strong else figure
    return f"{figure}, {escape_latex(cell.remark)}" if cell.remark else figure


def _csv_cell(cell: Cell) -> str:
    if isinstance(cell, Missing):
        return ""
    return spreadsheet_cell(cell) if isinstance(cell, str) else f"{cell.value:.6g}"
