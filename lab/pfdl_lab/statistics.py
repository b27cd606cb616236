"""Figures that the sections of the experiments share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pfdl_lab.pairing import PairedDifference, holm, standard_error
from pfdl_lab.report.blocks import Cell, Missing, Number
from pfdl_lab.report.lines import Series

Values = Sequence[float] | pd.Series
ACTS_BELOW = 0.999
"""An effective sample size, as a share of the batch, from which on a weighting is plain training by
another name.
"""
MARGIN = 1.0
"""Points within which two rows are called equal."""

SIGNIFICANCE = 0.05
"""The level of a test."""

NOTHING = pd.Series(dtype=float)


class TestResult(NamedTuple):
    """One test of several: the difference, and its p-value after Holm's method over all of them."""

    difference: PairedDifference | None
    adjusted: float


def judge(differences: Sequence[PairedDifference | None]) -> list[TestResult]:
    """Test paired differences by Holm's method; one that could not be measured counts as one of the
    tests.
    """
    adjusted = holm([float("nan") if one is None else one.p_value for one in differences])
    return list(map(TestResult, differences, adjusted))


def judged_note(tests: str) -> str:
    """Return what is written below tables of :func:`judged_cell`."""
    return (
        "Paired differences in points ± standard error, the 95 % interval if they are not"
        " significant, the number of seeds with a positive difference, the p-value of the paired"
        f" t-test and, by Holm's method, that over all {tests}; bold: significant at 5 % by the"
        f" latter. Equal: two one-sided t-tests place the difference within ± {MARGIN:g} point at"
        " 5 %."
    )


def judged_cell(judged: TestResult) -> Cell:
    """Return a tested difference as a cell, with its interval and its p-values."""
    difference = judged.difference
    if difference is None or difference.pairs < 2:
        return Missing()
    strong = judged.adjusted <= SIGNIFICANCE
    is_equal = difference.equivalence_p_value(MARGIN) <= SIGNIFICANCE
    word = "equal" if is_equal else "" if strong else "no difference shown"
    ends = (difference.mean - difference.reach, difference.mean + difference.reach)
    interval = (
        ""
        if strong
        else "95 % " + " to ".join(Number(end, digits=2, signed=True).printed for end in ends)
    )
    figures = f"p = {difference.p_value:.2g}, Holm {judged.adjusted:.2g}"
    remark = ", ".join(
        filter(None, (interval, f"{difference.positive} of {difference.pairs}", figures, word))
    )
    return difference_cell(difference, 2, strong=strong, remark=remark)


def by_seed(results: pd.DataFrame, *columns: str) -> dict[Any, pd.Series[float]]:
    """Return the values by their seed, for each combination of entries that some columns have."""
    lines = results.dropna(subset=["value"]).set_index("seed")
    return dict(iter(lines.groupby(list(columns), sort=False)["value"]))


def mean_cell(values: Values, digits: int) -> Cell:
    """Return the mean of repetitions ± its standard error; missing without any."""
    return (
        Number(float(np.mean(values)), standard_error(values), digits) if len(values) else Missing()
    )


def mean_series(
    name: str, values: Mapping[Any, Values], colour: int, style: str = "lines+markers"
) -> Series | None:
    """Return the means at some places with their standard errors, as a line of a plot; None where
    one has no values.
    """
    if not values or not all(len(one) for one in values.values()):
        return None
    means = [float(np.mean(one)) for one in values.values()]
    errors = [standard_error(one) for one in values.values()]
    return Series(name, list(values), means, errors, style, colour)


def difference_cell(
    difference: PairedDifference | None, digits: int, *, strong: bool = False, remark: str = ""
) -> Cell:
    """Return a paired difference as a cell with its sign."""
    if difference is None:
        return Missing()
    return Number(
        difference.mean,
        difference.standard_error,
        digits,
        signed=True,
        strong=strong,
        remark=remark,
    )
