"""Differences of paired repetitions, and whether they may be chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import t as student_t


@dataclass(frozen=True)
class PairedDifference:
    """The mean difference of paired measurements.

    Attributes:
        mean: Mean of the differences.
        standard_error: Their standard deviation (n − 1) over √n; NaN for a single pair.
        pairs: Number of pairs.
        positive: In how many of them the difference is above zero.
    """

    mean: float
    standard_error: float
    pairs: int
    positive: int = 0

    @property
    def reach(self) -> float:
        """How far the 95 % interval of Student's t reaches to either side of the mean; NaN for a
        single pair.
        """
        return float(student_t.ppf(0.975, self.pairs - 1)) * self.standard_error

    def is_beyond_chance(self) -> bool:
        """Return whether the 95 % interval leaves out zero; never for a single pair. Tables print
        that in bold.

        Example:
            >>> PairedDifference(mean=2.0, standard_error=1.0, pairs=2).is_beyond_chance()
            False
        """
        return abs(self.mean) > self.reach

    @property
    def p_value(self) -> float:
        """Of a two-sided paired t-test: how likely chance alone brings so large a difference; NaN
        for a single pair.

        Example:
            >>> round(PairedDifference(mean=2.0, standard_error=0.5, pairs=5).p_value, 4)
            0.0161
        """
        if self.standard_error == 0:
            return float(self.mean == 0)
        return 2 * float(student_t.sf(abs(self.mean) / self.standard_error, self.pairs - 1))

    def equivalence_p_value(self, margin: float) -> float:
        """Return the p-value of two one-sided t-tests: small if the true difference is within ± the
        margin.

        Args:
            margin: How large a difference may be and still not matter.

        Example:
            >>> round(
            ...     PairedDifference(mean=0.1, standard_error=0.3, pairs=12).equivalence_p_value(
            ...         1.0
            ...     ),
            ...     3,
            ... )
            0.006
        """
        if self.standard_error == 0:
            return float(abs(self.mean) >= margin)
        return float(student_t.sf((margin - abs(self.mean)) / self.standard_error, self.pairs - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted by Holm's method, in their order; at most 5 % means significant
    at 5 % over all.

    A p-value that is NaN, of a test that was declared and could not be made, counts as one of the
    tests.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    adjusted = [math.nan] * len(p_values)
    largest = 0.0
    made = [place for place in range(len(p_values)) if not math.isnan(p_values[place])]
    for rank, place in enumerate(sorted(made, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def standard_error(values: ArrayLike) -> float:
    """Return the standard error of the mean; NaN for a single value."""
    measured = np.asarray(values, dtype=float)
    return float(measured.std(ddof=1) / len(measured) ** 0.5) if len(measured) > 1 else math.nan


def paired(first: pd.Series[float], second: pd.Series[float]) -> PairedDifference | None:
    """Return how far the first lies above the second over the repetitions that both have; None
    without any.

    Args:
        first: Measurements, by the repetition.
        second: Their partners.

    Example:
        >>> paired(pd.Series([3.0, 5.0, 9.0]), pd.Series([2.0, 2.0]))
        PairedDifference(mean=2.0, standard_error=1.0, pairs=2, positive=2)
    """
    differences = (first - second).to_numpy(dtype=float)
    differences = differences[~np.isnan(differences)]  # of repetitions that only one of them has
    if not len(differences):
        return None
    positive = int((differences > 0).sum())
    return PairedDifference(
        float(differences.mean()), standard_error(differences), len(differences), positive
    )
