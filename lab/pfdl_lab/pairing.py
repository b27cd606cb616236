"""Differences of paired repetitions, and whether they may be chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import t as student_t

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PairedDifference:
    """The mean difference of paired measurements.

    Attributes:
        mean: Mean of the differences.
        standard_error: Their standard deviation (n − 1) over √n; NaN for a single pair.
        pairs: Number of pairs.
    """

    mean: float
    standard_error: float
    pairs: int

    def is_beyond_chance(self, comparisons: int = 1) -> bool:
        """Return whether the 95 % interval of Student's t leaves out zero; never for a single pair.

        Tables print such differences in bold. Two standard errors would do for many pairs; two pairs need thirteen.

        Args:
            comparisons: How many such questions are asked together. The interval is widened (Bonferroni), so that in
                one of twenty reports, not for one of twenty questions, chance is taken for something.

        Example:
            >>> PairedDifference(mean=2.0, standard_error=1.0, pairs=2).is_beyond_chance()
            False
            >>> PairedDifference(mean=2.0, standard_error=0.5, pairs=5).is_beyond_chance()
            True
            >>> PairedDifference(mean=2.0, standard_error=0.5, pairs=5).is_beyond_chance(comparisons=7)
            False
        """
        if self.pairs < 2:
            return False
        return abs(self.mean) > float(student_t.ppf(1 - 0.025 / comparisons, self.pairs - 1)) * self.standard_error

    @property
    def p_value(self) -> float:
        """Of a two-sided paired t-test: how likely chance alone brings so large a difference; NaN for a single pair.

        Example:
            >>> round(PairedDifference(mean=2.0, standard_error=0.5, pairs=5).p_value, 4)
            0.0161
        """
        if self.standard_error == 0:
            return float(self.mean == 0)
        return 2 * float(student_t.sf(abs(self.mean) / self.standard_error, self.pairs - 1))

    def equivalence_p_value(self, margin: float) -> float:
        """Return the p-value of two one-sided t-tests: small if the true difference is within ± the margin.

        Args:
            margin: How large a difference may be and still not matter.

        Example:
            >>> round(PairedDifference(mean=0.1, standard_error=0.3, pairs=12).equivalence_p_value(1.0), 3)
            0.006
        """
        if self.standard_error == 0:
            return float(abs(self.mean) >= margin)
        return float(student_t.sf((margin - abs(self.mean)) / self.standard_error, self.pairs - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted by Holm's method, in their order; at most 5 % means significant at 5 % over all.

    A p-value that is NaN, of a test that was declared and could not be made, counts as one of the tests.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    adjusted, largest = [math.nan] * len(p_values), 0.0
    made = [place for place in range(len(p_values)) if not math.isnan(p_values[place])]
    for rank, place in enumerate(sorted(made, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def paired_difference(first: Sequence[float], second: Sequence[float]) -> PairedDifference:
    """Return how much the first of two series of paired measurements lies above the second.

    Args:
        first: Measurements.
        second: Their partners, in the same order.

    Returns:
        Mean and standard error of first − second.

    Raises:
        ValueError: If there are no pairs, or one series is longer.

    Example:
        >>> paired_difference([3.0, 5.0], [2.0, 2.0])
        PairedDifference(mean=2.0, standard_error=1.0, pairs=2)
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"{len(first)} and {len(second)} measurements are no pairs; give equally many of both.")
    differences = np.subtract(first, second)
    error = differences.std(ddof=1) / np.sqrt(len(first)) if len(first) > 1 else np.nan
    return PairedDifference(float(differences.mean()), float(error), len(first))


def paired(first: pd.Series[float], second: pd.Series[float]) -> PairedDifference | None:
    """Return the difference over the repetitions that both have, by their index; None without any."""
    partners = second.to_dict()
    ours = {seed: value for seed, value in first.items() if seed in partners}
    if not ours:
        return None
    return paired_difference(list(ours.values()), [partners[seed] for seed in ours])
