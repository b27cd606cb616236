"""Columns whose relation to the label differs between environments.

One sample cannot say whether a column that predicts will predict elsewhere; several environments
can. A column goes if its slope differs between them *and* least squares without it predicts
environments better that it has not seen. Everything follows from the second moments of each
environment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pfdl.tabular.moments import (
    ALPHA,
    FloatArray,
    IndexArray,
    f_test,
    label_functions,
    standardised,
)
from pfdl.tabular.screening import (
    CHANGES,
    CONSTANT,
    IDENTIFIER,
    MISSING,
    Screening,
    Table,
    filled,
)

_RIDGE = 1e-9
_LEAST_GAIN = 0.02
_LEAST_AGREEMENT = 0.6
_LEAST_ROWS = 10


@dataclass(frozen=True)
class Environments:
    """What known environments say about the columns.

    Attributes:
        changes: p-value, per column, of "its slope is the same in all environments", when it was
            last looked at.
        error: root mean squared error of least squares on all columns in environments left out of
            its fit, in standard deviations of the label, one per environment.
        error_of_kept: the same on the kept columns.
        names: the environments.
    """

    changes: FloatArray
    error: FloatArray
    error_of_kept: FloatArray
    names: NDArray[np.str_]


def compare_environments(result: Screening, table: Table, groups: NDArray[np.str_]) -> None:
    """Leave out further columns without which least squares predicts unseen environments better.

    Columns that one sample gave no reason to drop are left out one by one: of those whose slope
    differs between environments (F-test at 1 %, divided by their number), the one without which the
    mean squared error in left-out environments falls most; as long as it falls by 2 % at least, in
    most environments, and does not rise in the worst. The columns of the label have mean 0 and
    variance 1.

    Raises:
        ValueError: If there are fewer than two environments with ten rows.
    """
    label = label_functions(table.y, table.number, table.weight)
    if table.number:
        label = label[:, :1]
    moments = _Moments(filled(table.X), label, groups, table.weight)
    kept = np.flatnonzero(result.kept & ~result.met(CONSTANT, IDENTIFIER, MISSING))
    level = ALPHA / max(len(kept), 1)
    changes = np.full(table.X.shape[1], np.nan)
    before = moments.errors(kept)
    error = before
    while len(kept) > 1:
        changes[kept] = moments.slope_tests(kept)
        may_go = (changes[kept] < level) & ~table.protected[kept]
        if not may_go.any():
            break
        candidates = kept[may_go]
        without = [moments.errors(kept[kept != column]) for column in candidates]
        best = int(np.argmin(np.mean(without, axis=1)))
        if not _is_better(without[best], error):
            break
        error = without[best]
        result.decision[candidates[best]] = CHANGES
        kept = kept[kept != candidates[best]]
    result.environments = Environments(changes, np.sqrt(before), np.sqrt(error), moments.names)


def _is_better(error: FloatArray, before: FloatArray) -> bool:
    """Return whether the error falls clearly, in most environments, and not at the worst's cost."""
    if error.mean() > (1.0 - _LEAST_GAIN) * before.mean() or error.max() > before.max():
        return False
    return bool((error < before).mean() >= _LEAST_AGREEMENT)


class _Moments:
    """Second moments of [1, columns, label] in every environment, as they are and around its
    means.
    """

    def __init__(
        self, X: FloatArray, label: FloatArray, groups: NDArray[np.str_], weight: FloatArray
    ) -> None:
        names, membership, rows = np.unique(groups, return_inverse=True, return_counts=True)
        large = rows >= _LEAST_ROWS
        if large.sum() < 2:
            raise ValueError(
                f"groups names {len(names)} environments, {int(large.sum())} of them with ten rows"
                " or more; at least two such are needed. Without groups, one sample is screened."
            )
        self.names = names[large]
        self.num_labels = label.shape[1]
        self._labels = 1 + X.shape[1] + np.arange(self.num_labels)
        both = np.hstack([np.ones((len(X), 1)), standardised(X), label])
        joint = []
        for number in np.flatnonzero(large):
            here = both[membership == number]
            joint.append(here.T @ (here * weight[membership == number, None]))
        self.joint = np.array(joint)
        self.rows = self.joint[:, 0, 0]
        sums = self.joint[:, 0]
        means = sums / self.rows[:, None]
        self.centred = self.joint - sums[:, :, None] * means[:, None, :]

    def errors(self, columns: IndexArray) -> FloatArray:
        """Return the mean squared error in each environment of least squares fitted to all the
        others.
        """
        inputs = np.concatenate([[0], 1 + columns])
        both = np.concatenate([inputs, self._labels])
        joint = self.joint[:, both[:, None], both]
        everywhere = joint.sum(axis=0)
        squares = []
        for here in joint:
            others = everywhere - here
            slopes = _solve(
                others[: len(inputs), : len(inputs)], others[: len(inputs), len(inputs) :]
            )
            # What is left of the labels, as a combination of inputs and labels
            residual = np.vstack([-slopes, np.eye(self.num_labels)])
            squares.append(np.trace(residual.T @ here @ residual))
        return np.asarray(np.maximum(squares, 0.0) / self.rows / self.num_labels)

    def slope_tests(self, columns: IndexArray) -> FloatArray:
        """Return, per column, the p-value of "its slope is the same in all environments", the
        others' being shared.

        Levels may differ between environments. With several label functions, the smallest of their
        p-values counts, multiplied by their number.
        """
        pooled = self.centred.sum(axis=0)
        inputs = 1 + columns
        others = len(self.rows) - 1
        among = pooled[np.ix_(inputs, inputs)]
        across = pooled[np.ix_(inputs, self._labels)]
        freedom = self.rows.sum() - len(self.rows) - len(inputs) - others
        if freedom < 1:
            return np.ones(len(columns))
        total = np.diag(pooled)[self._labels]
        shared = _residual(among, across, total) / (freedom + others)
        p_values = []
        for column in inputs:
            # Design: the columns, and the column once more for every environment but the first.
            extra = self.centred[1:, column]
            own = np.diag(extra[:, column])
            wide = np.block([[among, extra[:, inputs].T], [extra[:, inputs], own]])
            with_label = np.vstack([across, extra[:, self._labels]])
            apart = _residual(wide, with_label, total) / freedom
            p_values.append(f_test(shared, apart, others, freedom).min())
        return np.asarray(np.minimum(1.0, self.num_labels * np.array(p_values)))


def _solve(among: FloatArray, across: FloatArray) -> FloatArray:
    """Return the slopes of least squares from the products among the inputs, and of the inputs with
    the labels.
    """
    ridge = _RIDGE * max(np.trace(among) / len(among), 1e-12)
    return np.linalg.solve(among + ridge * np.eye(len(among)), across)


def _residual(among: FloatArray, across: FloatArray, total: FloatArray) -> FloatArray:
    """Return the sum of squares that least squares leaves of each label."""
    return np.asarray(np.maximum(total - (across * _solve(among, across)).sum(axis=0), 1e-12))
