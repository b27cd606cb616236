"""Choices of settings on Colored-MNIST: PFDL's weight, and where to stop without environment labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pfdl.data.colored_mnist import TRAIN_COLOR_FLIPS
from pfdl_lab.colored_mnist.rows import ROWS, ColoredMNISTRow

WORST_GROUP = "held_out_worst_group"
RISKS = tuple(f"held_out_risk_{flip}" for flip in TRAIN_COLOR_FLIPS)

Candidate = TypeVar("Candidate")


def choose_on_training_environments(results: pd.DataFrame, candidates: Sequence[ColoredMNISTRow]) -> ColoredMNISTRow:
    """Return the candidate that held-out rows of the training environments favour."""
    risks = {row.key: results.loc[results["row"] == row.key, list(RISKS)].to_numpy() for row in candidates}
    return ROWS[evenest_within_one_standard_error(risks)]


def choose_by_test_environment(results: pd.DataFrame, candidates: Sequence[ColoredMNISTRow]) -> ColoredMNISTRow:
    """Return the candidate that does best in the test environment: an oracle."""
    test = results.groupby("row")["test_accuracy"].mean()
    return ROWS[str(test.loc[[row.key for row in candidates]].idxmax())]


def choose_by_worst_group(results: pd.DataFrame, candidates: Sequence[ColoredMNISTRow]) -> pd.DataFrame:
    """Return for each restart the line, of all candidates and steps, with the best worst inferred group held out.

    Args:
        results: Lines with ``row``, ``restart``, ``step`` and the accuracy of the worst group on held-out images of
            the training environments; a group is one class in one inferred context.
        candidates: Rows to choose from.

    Returns:
        One line per restart; in a tie, the candidate that comes first, at its earliest step.
    """
    order = {row.key: number for number, row in enumerate(candidates)}
    chosen = results[results["row"].isin(order)].dropna(subset=WORST_GROUP)
    chosen = chosen.assign(order=chosen["row"].map(order)).sort_values(["order", "step"], kind="stable")
    return chosen.loc[chosen.groupby("restart")[WORST_GROUP].idxmax()].drop(columns="order")


def evenest_within_one_standard_error(risks: Mapping[Candidate, ArrayLike]) -> Candidate:
    """Return the candidate whose risk is most even between environments, among those whose risk is about the lowest.

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
