"""What a table shows of the selection of its rows: labels that are missing, and the label's edges.

None of this says that a column is an effect of the label. It says that the rows with a label are
not a sample of all rows, which no model fitted to them can mend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import mannwhitneyu

from pfdl.tabular.moments import ALPHA, FloatArray

if TYPE_CHECKING:
    import pandas as pd

_LEAST_ROWS = 20
_SHOWN = 5
#: A label of fewer values has no edges or holes; one with so many rows at an end is piled up there.
_LEAST_VALUES = 100
_CENSORED = 0.05
#: Beside a hard edge lie at least this many times the rows of the next strip; a hole is as wide as
#: this share of the label's middle nine tenths.
_EDGE = 0.8
_HOLE = 0.15


def describe_missing_label(columns: pd.DataFrame, missing: pd.Series, target: str) -> str:
    """Say which columns predict that the label of a row is missing; empty if none is missing.

    Each column is compared between rows with and without a label by the Mann-Whitney test, at 1 %
    divided by the number of columns.
    """
    count = int(missing.sum())
    if not count:
        return ""
    sentence = f"left out, as {target!r} is missing: {count} of {len(missing)} rows."
    predictors = _predictors(columns, missing)
    if not predictors:
        return f"{sentence} No column predicts which."
    return (
        f"{sentence} That is not chance: {', '.join(predictors[:_SHOWN])} (AUC) predict it. What is"
        " found holds for rows with a label only; look for what decides who has one."
    )


def _predictors(columns: pd.DataFrame, missing: pd.Series) -> list[str]:
    areas: list[tuple[float, str]] = []
    for name, column in columns.items():
        known = column.notna()
        without = column[known & missing].to_numpy(dtype=np.float64)
        with_label = column[known & ~missing].to_numpy(dtype=np.float64)
        if min(len(without), len(with_label)) < _LEAST_ROWS:
            continue
        statistic, p_value = mannwhitneyu(without, with_label)
        area = float(statistic) / (len(without) * len(with_label))
        if p_value < ALPHA / columns.shape[1]:
            areas.append((max(area, 1.0 - area), str(name)))
    return [f"{name} {area:.2f}" for area, name in sorted(areas, reverse=True)]


def describe_edges(y: FloatArray, target: str = "the label") -> list[str]:
    """Say where a numeric label is cut off, piled up at an end, or has a hole.

    A sentence is a hint, not a test: prices end at 0 as well.
    """
    values = np.sort(y[np.isfinite(y)])
    if len(np.unique(values)) < _LEAST_VALUES:
        return []
    sentences = [
        _describe_end(values, "lowest", values[0], target),
        _describe_end(-values[::-1], "highest", values[-1], target),
        _describe_hole(values, target),
    ]
    return [f"{sentence[0].upper()}{sentence[1:]}" for sentence in sentences if sentence]


def _describe_end(from_end: FloatArray, end: str, edge: float, target: str) -> str:
    """Say what is special of one end of the values, sorted from there; empty if nothing is."""
    piled = float((from_end == from_end[0]).mean())
    if piled > _CENSORED:
        return (
            f"{100 * piled:.0f} % of the rows have the {end} value of {target}, {edge:g}: it may be"
            " censored there."
        )
    if _is_hard_edge(from_end):
        return (
            f"{target} ends sharply at its {end} value, {edge:g}: rows beyond may have been left"
            " out (truncation)."
        )
    return ""


def _describe_hole(values: FloatArray, target: str) -> str:
    """Say between which of the sorted values there is a wide gap; empty if there is none."""
    low, high = np.quantile(values, [0.05, 0.95])
    gaps = np.diff(values)
    widest = int(np.argmax(gaps))
    before = values[widest]
    after = values[widest + 1]
    if before < low or after > high or gaps[widest] <= _HOLE * (high - low):
        return ""
    return (
        f"{target} has no value between {before:g} and {after:g}: rows with such values may have"
        " been left out."
    )


def _is_hard_edge(values: FloatArray) -> bool:
    """Return whether rows lie as densely beside the lowest value as a little above it."""
    width = (np.median(values) - values[0]) / 8.0
    if width <= 0:
        return False
    first, second = np.histogram(values, bins=values[0] + width * np.arange(3))[0]
    return bool(min(first, second) >= _LEAST_ROWS and first >= _EDGE * second)
