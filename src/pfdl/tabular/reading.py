"""Reading a table from a file, so that it can be screened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pfdl._internal import files
from pfdl._internal.text import quoted
from pfdl.tabular.validation import identifies_rows
from pfdl.tabular.visible import describe_edges, describe_missing_label

if TYPE_CHECKING:
    import pandas as pd

_MOST_BYTES = 1 << 33


def read_table(
    path: str | Path, target: str, *, complete: bool = True
) -> tuple[pd.DataFrame, pd.Series, list[str]]:
    """Read a CSV file with a header, or a Parquet file, as a table that can be screened.

    Separators ``,`` ``;`` tab and ``|`` are recognised, with ``;`` also decimal commas.

    Args:
        path: The file.
        target: The column to be predicted.
        complete: Whether to leave out rows in which a column is missing. Rows without the target
            are left out in any case, with a word on which columns predict that it is missing.

    Returns:
        The columns to predict from, without those that are not numeric or identify the rows; the
        target; and a sentence on everything that was left out, and on what the target shows of it.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is not such a table, has no such column, or too little is left of it.
    """
    path = Path(path)
    table = _read(path, target)
    numeric, notes = _columns_to_judge(table, target)
    missing = numeric[target].isna()
    notes.append(describe_missing_label(numeric.drop(columns=target), missing, target))
    rows = numeric[~missing]
    if complete:
        labelled = len(rows)
        rows = rows.dropna()
        if lost := labelled - len(rows):
            notes.append(f"left out, as a value is missing: {lost} of {len(table)} rows.")
    _check_enough(rows, numeric, path, target)
    label = rows[target]
    if label.dtype.kind == "f":
        notes += describe_edges(label.to_numpy(), repr(target))
    return rows.drop(columns=target), label, [note for note in notes if note]


def _read(path: Path, target: str) -> pd.DataFrame:
    """Return the table in a file, which must have the target."""
    table = files.read_frame(path, limit=_MOST_BYTES)
    table.columns = [str(name) for name in table.columns]
    if target not in table.columns:
        raise ValueError(f"{path} has no column {target!r}; it has {quoted(table.columns)}.")
    return table


def _columns_to_judge(table: pd.DataFrame, target: str) -> tuple[pd.DataFrame, list[str]]:
    """Return the target and the numeric columns that do not identify the rows, and a word on the
    others.
    """
    import pandas as pd

    words = []
    keys = []
    for name, column in table.drop(columns=target).items():
        if not pd.api.types.is_numeric_dtype(column):
            words.append(name)
        elif identifies_rows(column.to_numpy(), str(name)):
            keys.append(name)
    notes = []
    if words:
        notes.append(f"not judged, as they are not numeric: {quoted(words)}.")
    if keys:
        notes.append(f"not judged, as they number or identify the rows: {quoted(keys)}.")
    numeric = table.drop(columns=[*words, *keys])
    return numeric.replace([np.inf, -np.inf], np.nan), notes


def _check_enough(whole: pd.DataFrame, numeric: pd.DataFrame, path: Path, target: str) -> None:
    """Raise a sentence if too little is left to predict the target from."""
    if whole.shape[1] < 2:
        raise ValueError(f"{path} has no numeric columns to predict {target!r} from.")
    if len(whole) < 2:
        gaps = numeric.isna().sum()
        holes = f": of {len(numeric)}, {gaps.max()} have no {gaps.idxmax()!r}" * bool(gaps.any())
        raise ValueError(f"{path} has {len(whole)} complete rows, too few{holes}.")
    if whole[target].nunique() < 2:
        raise ValueError(
            f"{target!r} has the same value in all complete rows of {path}; there is nothing to"
            " predict."
        )
