"""Choosing the strength of a penalty from the training environments alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student_t

if TYPE_CHECKING:
    import pandas as pd

Candidate = TypeVar("Candidate")


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
        """Whether the 95 % interval of Student's t leaves out zero; never for a single pair.

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


def paired_difference(first: Sequence[float], second: Sequence[float]) -> PairedDifference:
    """How much the first of two series of paired measurements lies above the second.

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
    """The difference over the repetitions that both have, by their index; None without any."""
    common = first.index.intersection(second.index)
    if not len(common):
        return None
    return paired_difference(first[common].tolist(), second[common].tolist())


def evenest_within_one_standard_error(risks: Mapping[Candidate, ArrayLike]) -> Candidate:
    """The candidate whose risk is most even between environments, among those whose risk is about the lowest.

    A penalty meant for shifts that the training environments show only a little of cannot be chosen by their mean
    risk: that favours whatever uses the most correlations. Nor by evenness alone: a network that always says the same
    is perfectly even. So the rule of one standard error, known from pruning trees, bounds what may be given up in
    mean risk, and evenness decides within that bound.

    Args:
        risks: For each candidate, held-out risks of shape (restarts, environments); restarts are paired.

    Returns:
        The chosen candidate. In a tie, the one that comes first.

    Raises:
        ValueError: If there are no candidates.

    Example:
        >>> evenest_within_one_standard_error({
        ...     "uneven": [[0.4, 0.6], [0.5, 0.7]], "even": [[0.5, 0.51], [0.6, 0.61]], "blind": [[0.69, 0.69]] * 2})
        'even'
    """
    if not risks:
        raise ValueError("there are no candidates to choose from.")
    tables = {candidate: np.asarray(table, dtype=float) for candidate, table in risks.items()}
    means = {candidate: table.mean(axis=1) for candidate, table in tables.items()}
    best = min(means, key=lambda candidate: float(means[candidate].mean()))
    tolerance = means[best].std(ddof=1) / np.sqrt(len(means[best])) if len(means[best]) > 1 else 0.0
    acceptable = [candidate for candidate in tables if means[candidate].mean() <= means[best].mean() + tolerance]
    return min(acceptable, key=lambda candidate: float(np.ptp(tables[candidate].mean(axis=0))))
