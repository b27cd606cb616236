"""Figures that the sections of the experiments share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from pfdl_lab.pairing import PairedDifference, standard_error
from pfdl_lab.report.blocks import Cell, Missing, Number

Values = Sequence[float] | pd.Series
NOTHING = pd.Series(dtype=float)


def by_seed(results: pd.DataFrame, *columns: str) -> dict[Any, pd.Series[float]]:
    """Return the values by their seed, for each combination of entries that some columns have."""
    lines = results.dropna(subset=["value"]).set_index("seed")
    return dict(iter(lines.groupby(list(columns), sort=False)["value"]))


def mean_cell(values: Values, digits: int) -> Cell:
    """Return the mean of repetitions ± its standard error; missing without any."""
    return (
        Number(float(np.mean(values)), standard_error(values), digits) if len(values) else Missing()
    )


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
