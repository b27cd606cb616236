"""Checks of the tables that the estimators are given; every complaint names the column, and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d, validate_data

from pfdl.tabular.moments import FloatArray

_LARGEST = 1e100
_SMALLEST = 1e-100


class Parameter(NamedTuple):
    """What a parameter of an estimator can be, and the words that say so."""

    accepts: Callable[[Any], bool]
    words: str


def one_of(*choices: str) -> Parameter:
    """Return a parameter that is one of some words."""
    return Parameter(
        lambda value: isinstance(value, str) and value in choices,
        f"one of {', '.join(map(repr, choices))}",
    )


def count(or_none: bool = False) -> Parameter:
    """Return a parameter that is a whole number from 1, or None where that is allowed."""

    def accepts(value: Any) -> bool:
        if value is None:
            return or_none
        return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1

    return Parameter(accepts, f"a whole number of at least 1{' or None' * or_none}")


def number_from_zero(or_zero: bool) -> Parameter:
    """Return a parameter that is a positive number, or 0 where that is allowed."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool):
            return False
        size = float(value)
        return size >= 0 if or_zero else size > 0

    return Parameter(accepts, f"a number {'of at least' if or_zero else 'above'} 0")


def check_parameters(estimator: Any, parameters: Mapping[str, Parameter]) -> None:
    """Raise unless the parameters of an estimator are what they can be."""
    for name, parameter in parameters.items():
        value = getattr(estimator, name)
        if not parameter.accepts(value):
            raise ValueError(
                f"The {name!r} parameter of {type(estimator).__name__} must be {parameter.words}."
                f" Got {value!r} instead."
            )


_KEYS = {
    "id",
    "index",
    "row",
    "rownames",
    "rownumber",
    "rownum",
    "unnamed:0",
    "key",
    "obs",
    "case",
    "no",
}

Fit = TypeVar("Fit", bound=Callable[..., Any])


def all_or_nothing(fit: Fit) -> Fit:
    """Let a ``fit`` that raises leave the estimator as it was, fitted to what it was fitted to
    before.

    Without this a fitted estimator that is shown a table it cannot use has the number of features
    of the new table and the coefficients of the old one.
    """

    @wraps(fit)
    def wrapped(self: Any, /, *arguments: Any, **options: Any) -> Any:
        before = dict(vars(self))
        try:
            return fit(self, *arguments, **options)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast(Fit, wrapped)


def check_table(
    estimator: Any, X: Any, y: Any = None, *, numeric_y: bool = False, allow_nan: bool = False
) -> tuple[FloatArray, Any]:
    """Validate X (an array, a pandas or a polars frame) and y for ``fit`` as scikit-learn does;
    return them.

    The estimator gets ``n_features_in_`` and, where X has names, ``feature_names_in_``.

    Raises:
        TypeError: If X is sparse.
        ValueError: If a column is not numeric, holds missing or infinite values, or is so large or
            so small that its squares leave the range of floats.
    """
    _refuse_what_is_no_number(X)
    X, y = validate_data(
        estimator,
        X,
        y,
        y_numeric=numeric_y,
        dtype=np.float64,
        ensure_all_finite=False,
        ensure_min_samples=1,
    )
    names = column_names(estimator)
    _check_finite(X, names, allow_nan)
    _check_range(X, names)
    if numeric_y:
        _check_range(np.asarray(y, dtype=np.float64)[:, None], ["y"])
    return X, y


def check_rows(estimator: Any, X: Any, *, allow_nan: bool = False) -> FloatArray:
    """Validate the rows for ``predict`` or ``transform`` of a fitted estimator."""
    _refuse_what_is_no_number(X)
    rows: FloatArray = validate_data(
        estimator, X, dtype=np.float64, ensure_all_finite=False, reset=False
    )
    _check_finite(rows, column_names(estimator), allow_nan)
    return rows


def column_names(estimator: Any) -> list[str]:
    """Return the names of the columns seen in ``fit``; x0, x1, … where they had none."""
    names = getattr(estimator, "feature_names_in_", None)
    return (
        [f"x{j}" for j in range(estimator.n_features_in_)]
        if names is None
        else [str(name) for name in names]
    )


def check_groups(groups: Any, rows: int) -> NDArray[Any]:
    """Return the environment of each row."""
    import pandas as pd

    names: NDArray[Any] = column_or_1d(np.asarray(groups))
    if (named := int(pd.notna(names).sum())) != rows or len(names) != rows:
        raise ValueError(
            f"groups name {named} environments for {rows} rows; give one for each row, none"
            " missing."
        )
    return names


def check_weights(sample_weight: Any, rows: int) -> FloatArray:
    """Return the weight of each row: a number for all of them, or one for each."""
    if sample_weight is None:
        return np.ones(rows)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.ndim == 0:
        weight = np.full(rows, float(weight))
    if weight.shape != (rows,):
        raise ValueError(
            f"sample_weight has shape {weight.shape}; give one weight for each of {rows} rows."
        )
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("sample_weight holds weights that are not finite, or negative values.")
    if not weight.any():
        raise ValueError("sample_weight is zero in every row; at least one must count.")
    return weight


def identifies_rows(values: NDArray[Any], name: str) -> bool:
    """Return whether a column numbers the rows: whole numbers, each once, in even steps or named as
    a key.

    A quantity may be distinct in every row, too; what gives an identifier away is that its values
    rise (or fall) by the same step, or that its name says so.
    """
    if values.dtype.kind not in "iuf" or len(values) < 3:
        return False
    if not np.isfinite(values).all() or (values != np.round(values)).any():
        return False
    with np.errstate(over="ignore"):
        steps = np.diff(values.astype(np.float64))
    if (steps == steps[0]).all():
        return bool(steps[0] != 0)
    plain = name.strip().lower().translate(str.maketrans("", "", " _."))
    named_as_key = plain in _KEYS or plain.endswith("id")
    return named_as_key and len(np.unique(values)) == len(values)


def _refuse_what_is_no_number(X: Any) -> None:
    """Raise a sentence that names the first column of a frame that holds dates or words."""
    if not hasattr(X, "columns") or not hasattr(X, "dtypes"):
        return
    for position, name in enumerate(X.columns):
        column = X.iloc[:, position] if hasattr(X, "iloc") else X[name]
        # The types of polars have none
        kind = getattr(column.dtype, "kind", None) or np.asarray(column[:0]).dtype.kind
        if kind in "mM" or str(column.dtype).startswith("period"):
            raise ValueError(
                f"column {name!r} holds dates or times ({column.dtype}). Turn it into what may"
                " matter of it: the days since the first one, the year or the month, as numbers."
            )
        try:
            if kind not in "biuf":
                np.asarray(column, dtype=np.float64)  # categories or objects may be numbers
        except (TypeError, ValueError):
            raise ValueError(
                f"column {name!r} is of type {column.dtype}, not numeric. Encode it first "
                "(sklearn.preprocessing.OneHotEncoder in a ColumnTransformer), or leave it out."
            ) from None


def _check_finite(X: FloatArray, names: Sequence[str], allow_nan: bool) -> None:
    counts = (np.isinf(X) if allow_nan else ~np.isfinite(X)).sum(axis=0)
    if not counts.any():
        return
    worst = int(np.argmax(counts))
    others = int((counts > 0).sum()) - 1
    kind = "infinity" if np.isinf(X[:, worst]).any() else "NaN"
    more = f" (and {others} more columns do)" if others else ""
    raise ValueError(
        f"column {names[worst]!r} contains {kind} in {counts[worst]} of {len(X)} rows{more}. Impute"
        " the missing values first (sklearn.impute.SimpleImputer), or leave out the rows or the"
        " column."
    )


def _check_range(X: FloatArray, names: Sequence[str]) -> None:
    """Raise a sentence if the squares of a column, or of what its values differ by, would leave the
    range of floats.
    """
    largest = np.fmax.reduce(np.abs(X), axis=0)
    with np.errstate(over="ignore"):
        spread = np.fmax.reduce(X, axis=0) - np.fmin.reduce(X, axis=0)
    for j in np.flatnonzero((largest > _LARGEST) | ((spread > 0) & (spread < _SMALLEST))).tolist():
        raise ValueError(
            f"column {names[j]!r} holds values up to {largest[j]:.3g} that differ by"
            f" {spread[j]:.3g}, and their squares leave the range of floats. Divide or multiply it"
            " by a constant."
        )
