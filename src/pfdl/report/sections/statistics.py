"""Figures and sentences that sections share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pfdl.experiments.pairing import PairedDifference
from pfdl.report.tables import Cell, Missing, Number


def mean_cell(values: Sequence[float] | pd.Series[float], digits: int, *, deviation: bool = False) -> Cell:
    """The mean of repetitions ± its standard error (or their population standard deviation); missing without any."""
    measured = np.asarray(values, dtype=float)
    if not len(measured):
        return Missing()
    if deviation:
        return Number(float(measured.mean()), float(measured.std(ddof=0)), digits)
    return Number(float(measured.mean()), standard_error(measured), digits)


def standard_error(values: Sequence[float] | pd.Series[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Of the mean; NaN for a single value."""
    measured = np.asarray(values, dtype=float)
    return float(measured.std(ddof=1) / len(measured) ** 0.5) if len(measured) > 1 else float("nan")


def difference_cell(difference: PairedDifference | None, digits: int) -> Cell:
    """A paired difference as a cell with its sign."""
    if difference is None:
        return Missing()
    return Number(difference.mean, difference.standard_error, digits, signed=True)


def verdict(
    method: str,
    plain: str,
    differences: Mapping[str, PairedDifference | None],
    *,
    digits: int = 1,
    lower_is_better: bool = False,
) -> str:
    """What paired differences of a method and plain training allow to say, in a sentence.

    Args:
        method: Name of the method.
        plain: Name of what it is compared to.
        differences: Method − plain, for each test.
        digits: Decimals of the sizes of differences.
        lower_is_better: Whether the figures are errors.

    Returns:
        Where the method is better and worse beyond chance; that nothing can be told, where that is so.
    """
    measured = {place: one for place, one in differences.items() if one is not None}
    if not measured:
        return f"{method} and {plain} have no finished repetition in common yet."
    pairs = max(one.pairs for one in measured.values())
    if pairs < 2:
        return f"One repetition of {method} and {plain} tells nothing of chance."
    sign = -1 if lower_is_better else 1
    beyond = {place: sign * one.mean for place, one in measured.items() if one.is_beyond_chance(len(measured))}
    better = [place for place, gain in beyond.items() if gain > 0]
    worse = [place for place, gain in beyond.items() if gain < 0]
    basis = f"{pairs} pairs, 95 % sure" + (f" over {len(measured)} comparisons" if len(measured) > 1 else "")
    if not better and not worse:
        where = "anywhere" if len(measured) > 1 else f"in {next(iter(measured))}"
        return f"{method} neither beats {plain} beyond chance {where} nor falls behind it ({basis})."
    parts = [f"better than {plain} {_listed(better, measured, digits)}"] if better else []
    parts += [f"worse than {plain} {_listed(worse, measured, digits)}"] if worse else []
    undecided = len(measured) - len(better) - len(worse)
    rest = f"; in {undecided} of {len(measured)} it cannot be told apart" if undecided else ""
    return f"{method} is {' and '.join(parts)}{rest} ({basis})."


def _listed(places: Sequence[str], of: Mapping[str, PairedDifference], digits: int) -> str:
    low, high = (f"{extreme(abs(of[place].mean) for place in places):.{digits}f}" for extreme in (min, max))
    size = f"by {low}" if low == high else f"by {low} to {high}"
    if len(of) == 1:
        return f"{size} in {places[0]}"
    return f"{size} everywhere" if len(places) == len(of) else f"{size} at {', '.join(places)}"
