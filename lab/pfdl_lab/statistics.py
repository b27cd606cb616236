"""Figures that the sections of the experiments share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pfdl.report.plots import Series
from pfdl.report.tables import Cell, Missing, Number
from pfdl_lab.pairing import PairedDifference, paired

Values = Sequence[float] | pd.Series
ACTS_BELOW = 0.999
"""An effective sample size, as a share of the batch, from which on a weighting is plain training by another name."""


def by_seed(results: pd.DataFrame, **where: object) -> pd.Series[float]:
    """Return the values of the lines whose columns have these entries, by their seed."""
    for column, entry in where.items():
        results = results[results[column] == entry]
    measured = results[results["value"].notna()]
    return measured.set_index("seed")["value"].astype(float)


def mean_cell(values: Values, digits: int, *, deviation: bool = False) -> Cell:
    """Return the mean of repetitions ± its standard error (or their population deviation); missing without any."""
    measured = np.asarray(values, dtype=float)
    if not len(measured):
        return Missing()
    if deviation:
        return Number(float(measured.mean()), float(measured.std(ddof=0)), digits)
    return Number(float(measured.mean()), standard_error(measured), digits)


def standard_error(values: Values | np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Return the standard error of the mean; NaN for a single value."""
    measured = np.asarray(values, dtype=float)
    return float(measured.std(ddof=1) / len(measured) ** 0.5) if len(measured) > 1 else float("nan")


def mean_series(name: str, values: Mapping[Any, Values], colour: int, style: str = "lines+markers") -> Series | None:
    """Return the means at some places with their standard errors, as a line of a plot; None where one has no values."""
    if not values or not all(len(one) for one in values.values()):
        return None
    errors = [standard_error(one) for one in values.values()]
    means = [float(np.mean(one)) for one in values.values()]
    return Series(name, list(values), means, errors, style, colour)


def difference_cell(
    difference: PairedDifference | None, digits: int, *, strong: bool = False, remark: str = ""
) -> Cell:
    """Return a paired difference as a cell with its sign."""
    if difference is None:
        return Missing()
    return Number(difference.mean, difference.standard_error, digits, signed=True, strong=strong, remark=remark)


def difference_with_count(ours: pd.Series[float], theirs: pd.Series[float], digits: int = 2) -> Cell:
    """Return a paired difference with its standard error and the number of seeds in which it is positive."""
    difference = paired(ours, theirs)
    if difference is None:
        return Missing()
    common = ours.index.intersection(theirs.index)
    positive = int((ours[common] > theirs[common]).sum())
    remark = f"{positive} of {difference.pairs}"
    return difference_cell(difference, digits, strong=difference.is_beyond_chance(), remark=remark)
