"""Figures and sentences that the sections of the experiments share."""

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


def verdict(
    method: str,
    plain: str,
    differences: Mapping[str, PairedDifference | None],
    *,
    unit: str = "points",
    digits: int = 1,
    lower_is_better: bool = False,
) -> str:
    """Say in a sentence what paired differences of a method and plain training show.

    Args:
        method: Name of the method.
        plain: Name of what it is compared to.
        differences: Method − plain, for each test.
        unit: What the differences are counted in.
        digits: Decimals of the sizes of differences.
        lower_is_better: Whether the figures are errors.

    Returns:
        Where the method is better and worse beyond chance, or that the two are equal within noise.
    """
    measured = {place: one for place, one in differences.items() if one is not None}
    if not measured:
        return f"{method} and {plain} have no finished repetition in common yet."
    pairs = max(one.pairs for one in measured.values())
    if pairs < 2:
        return f"{method} and {plain} have one repetition in common, which says nothing about chance."
    sign = -1 if lower_is_better else 1
    beyond = {place: sign * one.mean for place, one in measured.items() if one.is_beyond_chance(len(measured))}
    better = [place for place, gain in beyond.items() if gain > 0]
    worse = [place for place, gain in beyond.items() if gain < 0]
    if not better and not worse:
        return f"{method} and {plain} are equal within noise ({_sizes(measured, unit, digits)}, {pairs} seeds)."
    parts = [f"better than {plain} {_listed(better, measured, unit, digits)}"] if better else []
    parts += [f"worse than {plain} {_listed(worse, measured, unit, digits)}"] if worse else []
    rest = len(measured) - len(beyond)
    equal = f"; equal within noise at the other {rest} of {len(measured)}" if rest else ""
    basis = f"{pairs} seeds, 95 % confidence" + (f" over {len(measured)} comparisons" if len(measured) > 1 else "")
    return f"{method} is {' and '.join(parts)}{equal} ({basis})."


def _sizes(of: Mapping[str, PairedDifference], unit: str, digits: int) -> str:
    printed = [difference_cell(one, digits) for one in of.values()]
    numbers = sorted((one for one in printed if isinstance(one, Number)), key=lambda one: one.value)
    if len(numbers) == 1:
        return f"difference {numbers[0]} {unit}"
    return f"differences of {numbers[0].printed} to {numbers[-1].printed} {unit} at {len(numbers)} tests"


def _listed(places: Sequence[str], of: Mapping[str, PairedDifference], unit: str, digits: int) -> str:
    low, high = (f"{extreme(abs(of[place].mean) for place in places):.{digits}f}" for extreme in (min, max))
    size = f"by {low} {unit}" if low == high else f"by {low} to {high} {unit}"
    if len(of) == 1:
        return f"{size} in {places[0]}"
    return f"{size} everywhere" if len(places) == len(of) else f"{size} at {', '.join(places)}"
