"""One definition of a table, from which its HTML, LaTeX and CSV are made."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

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
    """

    value: float
    error: float | None = None
    digits: int = 1
    signed: bool = False

    @property
    def printed(self) -> str:
        """The figure with a proper minus."""
        return f"{self.value:{'+' if self.signed else ''}.{self.digits}f}".replace("-", "−")

    @property
    def printed_error(self) -> str:
        """What follows the ±; empty where there is none."""
        return "" if self.error is None or math.isnan(self.error) else f"{self.error:.{self.digits}f}"


@dataclass(frozen=True)
class Missing:
    """A cell without a figure: a dash to the eye, and to a screen reader the reason."""

    reason: str = "not run"


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
        wide: Whether cells that are not numbers are words that may wrap, rather than figures as somebody printed them.

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
        """Whether the cells of a column are words, which are set from the left and may wrap."""
        return self.wide and any(isinstance(row.cells[place], str) for row in self.rows)

    @property
    def csv(self) -> str:
        """As comma-separated values with all decimals; a missing cell is empty, and an error has its own column.

        No text in it is a formula to a spreadsheet.
        """
        with_error = [
            any(isinstance(row.cells[place], Number) and _number(row.cells[place]).printed_error for row in self.rows)
            for place in range(len(self.columns))
        ]
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        header = [self.corner]
        for name, doubled in zip(self.columns, with_error, strict=True):
            header += [name, f"{name} ({self.error_name})"] if doubled else [name]
        writer.writerow(map(spreadsheet_cell, header))
        for row in self.rows:
            line = [spreadsheet_cell(row.header)]
            for cell, doubled in zip(row.cells, with_error, strict=True):
                line += _csv_cells(cell)[: 2 if doubled else 1]
            writer.writerow(line)
        return stream.getvalue()

    @property
    def latex(self) -> str:
        """As a LaTeX table; it needs the package booktabs."""
        alignment = "l" + "".join("l" if self.has_words(place) else "r" for place in range(len(self.columns)))
        header = " & ".join(escape_latex(name) for name in (self.corner, *self.columns))
        lines = [" & ".join([escape_latex(row.header), *map(_latex_cell, row.cells)]) for row in self.rows]
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{escape_latex(self.caption)}}}",
                rf"\begin{{tabular}}{{{alignment}}}",
                r"\toprule",
                rf"{header} \\",
                r"\midrule",
                *(rf"{line} \\" for line in lines),
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )


def escape_latex(text: str) -> str:
    r"""Text that LaTeX prints as it stands.

    Example:
        >>> print(escape_latex("50 % of β_V"))
        50 \% of $\beta$\_V
    """
    return text.translate(_LATEX)


def _number(cell: Cell) -> Number:
    assert isinstance(cell, Number)
    return cell


def _latex_cell(cell: Cell) -> str:
    if isinstance(cell, Missing):
        return "--"
    if isinstance(cell, str):
        return escape_latex(cell)
    value = cell.printed.replace("−", "-")
    return f"${value} \\pm {cell.printed_error}$" if cell.printed_error else f"${value}$"


def _csv_cells(cell: Cell) -> list[str]:
    if isinstance(cell, Missing):
        return ["", ""]
    if isinstance(cell, str):
        return [spreadsheet_cell(cell), ""]
    return [f"{cell.value:.6g}", f"{cell.error:.6g}" if cell.printed_error else ""]
