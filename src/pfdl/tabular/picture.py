"""The label-conditional decomposition of a table as points to draw: m against k."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pfdl.tabular.classifier import PFDLClassifier
from pfdl.tabular.pfdl import PFDLRegressor

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Picture:
    """One point per column of a table.

    Attributes:
        columns: Their names.
        m: How much of each column the others explain; NaN where it cannot be judged (a constant, a copy).
        k: The same once the label is known.
        share: Of all that can be told about the column, how much the label tells alone.
        decisions: What was decided: ``"kept"``, ``"follows the label"``, ``"isolated"`` or ``"constant"``.
        ratio_threshold: Slope of the line through 0 below which a column is a candidate to be dropped: k/m.
        share_threshold: What its share must exceed besides.
        verdict: The outcome in a sentence.
        rows: Rows of the table.
    """

    columns: tuple[str, ...]
    m: tuple[float, ...]
    k: tuple[float, ...]
    share: tuple[float, ...]
    decisions: tuple[str, ...]
    ratio_threshold: float
    share_threshold: float
    verdict: str
    rows: int


def picture_table(table: pd.DataFrame, target: str, **settings: Any) -> Picture:
    """Screen the columns of a table and return what there is to draw.

    Args:
        table: Numeric columns, and the target, numeric or not.
        target: The column to be predicted: a number (`PFDLRegressor` screens) or a class (`PFDLClassifier` does).
        settings: For that estimator, such as ``share_threshold``.

    Returns:
        The points and the decisions.

    Example:
        >>> from pfdl.data import make_mmads
        >>> picture = picture_table(make_mmads(1000, 10, 1.7, seed=0).frame(), "y")
        >>> [name for name, decision in zip(picture.columns, picture.decisions) if decision == "kept"]
        ['S1', 'S2', 'S3', 'S4', 'S5']
    """
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    label = table[target]
    number = is_numeric_dtype(label) and not is_bool_dtype(label)
    model = (PFDLRegressor if number else PFDLClassifier)(**settings)
    model.fit(table.drop(columns=target), label)
    found = model.explain()
    return Picture(
        columns=tuple(map(str, found.index)),
        m=tuple(found["m"].tolist()),
        k=tuple(found["k"].tolist()),
        share=tuple(found["share"].tolist()),
        decisions=tuple(found["decision"].tolist()),
        ratio_threshold=model.ratio_threshold,
        share_threshold=model.share_threshold,
        verdict=model.verdict_,
        rows=len(table),
    )


def read_table(path: Path, target: str) -> tuple[pd.DataFrame, list[str]]:
    """Read a CSV file with a header as a table that can be screened.

    Args:
        path: The file.
        target: The column to be predicted.

    Returns:
        The table without columns that are not numeric and rows that are not complete; and a sentence on each such loss.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not such a table, has no such column, or too little is left of it.
    """
    import pandas as pd

    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; give a CSV file with a header.")
    try:
        table = pd.read_csv(path)
    except ValueError as error:  # of pandas, for what is not a table or not UTF-8
        raise ValueError(f"{path} is not a CSV file in UTF-8 ({str(error).strip()}).") from error
    if target not in table.columns:
        raise ValueError(f"{path} has no column {target!r}; it has {', '.join(map(repr, table.columns))}.")
    notes = []
    words = [name for name in table.columns if name != target and not pd.api.types.is_numeric_dtype(table[name])]
    if words:
        notes.append(f"left out, as they are not numeric: {', '.join(map(repr, words))}.")
    whole = table.drop(columns=words).replace([np.inf, -np.inf], np.nan).dropna()
    if len(whole) < len(table):
        notes.append(f"left out, as a value is missing: {len(table) - len(whole)} of {len(table)} rows.")
    if whole.shape[1] < 2 or len(whole) < 2 or whole[target].nunique() < 2:
        raise ValueError(
            f"of {path}, {len(whole)} complete rows and {whole.shape[1] - 1} numeric columns beside {target!r} are "
            "left (or the target never changes); that is too little to judge."
        )
    return whole, notes
