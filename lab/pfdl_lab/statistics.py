"""Figures that the sections of the experiments share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pfdl_lab.pairing import PairedDifference, standard_error
from pfdl_lab.report.blocks import Cell, Missing, Number
from pfdl_lab.report.lines import Series

Values = Sequence[float] | pd.Series
ACTS_BELOW = 0.999
"""An effective sample size, as a share of the batch, from which on a weighting is plain training by another name."""
NOTHING = pd.Series(dtype=float)


def by_seed(results: pd.DataFrame, *columns: str) -> dict[Any, pd.Series[float]]:
    """Return the values by their seed, for each combination of entries that some columns have."""
    lines = results.dropna(subset=["value"]).set_index("seed")
    return dict(iter(lines.groupby(list(columns), sort=False)["value"]))


def mean_cell(values: Values, digits: int) -> Cell:
    """Return the mean of repetitions ± its standard error; missing without any."""
    return Number(float(np.mean(values)), standard_error(values), digits) if len(values) else Missing()


def mean_series(name: str, values: Mapping[Any, Values], colour: int, style: str = "lines+markers") -> Series | None:
    """Return the means at some places with their standard errors, as a line of a plot; None where one has no values."""
    if not values or not all(len(one) for one in values.values()):
        return None
    means, errors = ([measure(one) for one in values.values()] for measure in (np.mean, standard_error))
    return Series(name, list(values), list(map(float, means)), list(map(float, errors)), style, colour)


def difference_cell(
    difference: PairedDifference | None, digits: int, *, strong: bool = False, remark: str = ""
) -> Cell:
    """Return a paired difference as a cell with its sign."""
    if difference is None:
        return Missing()
    return Number(difference.mean, difference.standard_error, digits, signed=True, strong=strong, remark=remark)
