"""Checks of the tables that the estimators are given; every complaint names the column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

FloatArray = NDArray[np.float64]

_LARGEST, _SMALLEST = 1e100, 1e-100
_REMEDY = "Encode it first (sklearn.preprocessing.OneHotEncoder in a ColumnTransformer), or leave it out."


def check_table(estimator: Any, X: Any, y: Any = None, *, numeric_y: bool = False) -> tuple[FloatArray, Any]:
    """Validate X and y for ``fit`` as scikit-learn does, with sentences that name the offending column.

    Args:
        estimator: Gets ``n_features_in_`` and, where X has names, ``feature_names_in_``.
        X: A table: an array, a pandas or a polars frame.
        y: The label.
        numeric_y: Whether the label must be numbers.

    Returns:
        X as float64 and y.

    Raises:
        ValueError: If a column is not numeric, holds missing or infinite values, or is so large or so small that its
            squares leave the range of floats.
    """
    refuse_words(X)
    X, y = validate_data(
        estimator, X, y, y_numeric=numeric_y, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=1
    )
    names = column_names(estimator)
    check_finite(X, names)
    check_range(X, names)
    if numeric_y:
        check_range(np.asarray(y, dtype=np.float64)[:, None], ["y"])
    return X, y


def check_rows(estimator: Any, X: Any) -> FloatArray:
    """Validate the rows for ``predict`` or ``transform`` of a fitted estimator."""
    refuse_words(X)
    X = validate_data(estimator, X, dtype=np.float64, ensure_all_finite=False, reset=False)
    check_finite(X, column_names(estimator))
    rows: FloatArray = X
    return rows


def column_names(estimator: Any) -> list[str]:
    """Return the names of the columns seen in ``fit``; x0, x1, … where they had none."""
    names = getattr(estimator, "feature_names_in_", None)
    return [f"x{j}" for j in range(estimator.n_features_in_)] if names is None else [str(name) for name in names]


def refuse_words(X: Any) -> None:
    """Raise a sentence if a column of a frame holds something else than numbers."""
    if not hasattr(X, "columns") or not hasattr(X, "dtypes"):
        return
    for position, name in enumerate(X.columns):
        column = X.iloc[:, position] if hasattr(X, "iloc") else X[name]
        if not _is_numeric(column):
            raise ValueError(f"column {name!r} is of type {column.dtype}, not numeric. {_REMEDY}")


def check_finite(X: FloatArray, names: Sequence[str]) -> None:
    """Raise a sentence if a column holds NaN or infinity."""
    if np.isfinite(X.sum()) or np.isfinite(X).all():  # the sum is cheap, and finite unless a value is not
        return
    for words, bad in (("NaN", np.isnan(X)), ("infinity", np.isinf(X))):
        counts = bad.sum(axis=0)
        if counts.any():
            worst = int(np.argmax(counts))
            others = int((counts > 0).sum()) - 1
            more = f" (and {others} more columns do)" if others else ""
            raise ValueError(
                f"column {names[worst]!r} contains {words} in {counts[worst]} of {len(X)} rows{more}. Impute the "
                "missing values first (sklearn.impute.SimpleImputer), or leave out the rows or the column."
            )


def check_range(X: FloatArray, names: Sequence[str]) -> None:
    """Raise a sentence if the squares of a column would overflow or underflow."""
    largest = np.abs(X).max(axis=0)
    for j in np.flatnonzero(largest > _LARGEST).tolist():
        raise ValueError(
            f"column {names[j]!r} holds values up to {largest[j]:.3g}, whose squares exceed the range of floats. "
            "Divide it by a constant."
        )
    spread = X.max(axis=0) - X.min(axis=0)
    for j in np.flatnonzero((spread > 0) & (spread < _SMALLEST)).tolist():
        raise ValueError(
            f"the values of column {names[j]!r} differ by no more than {spread[j]:.3g}, whose square is below the "
            "range of floats. Multiply it by a constant, or leave it out."
        )


def _is_numeric(column: Any) -> bool:
    dtype = column.dtype
    if hasattr(column, "iloc"):
        from pandas.api.types import is_numeric_dtype

        return bool(is_numeric_dtype(dtype)) or (dtype.kind == "O" and _converts(column))
    return np.asarray(column[:0]).dtype.kind in "biuf"


def _converts(column: Any) -> bool:
    try:
        np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True
