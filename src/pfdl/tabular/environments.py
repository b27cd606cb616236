"""Columns whose relation to the label differs between environments.

One sample cannot say whether a column that predicts will predict elsewhere; several environments can. A column goes if
its slope differs between them *and* least squares without it predicts environments better that it has not seen.
Everything follows from the second moments of each environment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from pfdl.tabular.moments import ALPHA, standardised
from pfdl.tabular.screening import CHANGES, CONSTANT, IDENTIFIER, MISSING, Screening

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]

_RIDGE = 1e-9
_LEAST_GAIN = 0.02
_LEAST_AGREEMENT = 0.6
_LEAST_ROWS = 10


@dataclass(frozen=True)
class Environments:
    """What known environments say about the columns.

    Attributes:
        changes: p-value, per column, of "its slope is the same in all environments", when it was last looked at.
        error: root mean squared error of least squares on all columns in environments left out of its fit, in standard
            deviations of the label, one per environment.
        error_of_kept: the same on the kept columns.
        names: the environments.
    """

    changes: FloatArray
    error: FloatArray
    error_of_kept: FloatArray
    names: NDArray[np.str_]


def compare_environments(
    found: Screening,
    X: FloatArray,
    label: FloatArray,
    groups: NDArray[np.str_],
    weight: FloatArray,
    protected: NDArray[np.bool_],
) -> Screening:
    """Leave out further columns without which least squares predicts unseen environments better.

    Columns that one sample gave no reason to drop are left out one by one: of those whose slope differs between
    environments (F-test at 1 %, divided by their number), the one without which the mean squared error in
    left-out environments falls most; as long as it falls by 2 % at least, in most environments, and does not rise in
    the worst. The columns of the label have mean 0 and variance 1.

    Raises:
        ValueError: If there are fewer than two environments with ten rows.
    """
    moments = _Moments(X, label, groups, weight)
    kept = np.flatnonzero(found.kept & ~np.isin(found.decision.astype(str), (CONSTANT, IDENTIFIER, MISSING)))
    level, changes, decision = ALPHA / max(len(kept), 1), np.full(X.shape[1], np.nan), found.decision.copy()
    before = now = moments.errors(kept)
    while len(kept) > 1:
        changes[kept] = moments.slope_tests(kept)
        trials = {j: moments.errors(np.setdiff1d(kept, [j])) for j in kept if changes[j] < level and not protected[j]}
        if not trials:
            break
        best = min(trials, key=lambda j: float(trials[j].mean()))
        trial = trials[best]
        falls = trial.mean() <= (1.0 - _LEAST_GAIN) * now.mean() and trial.max() <= now.max()
        if not falls or (trial < now).mean() < _LEAST_AGREEMENT:
            break
        kept, now = np.setdiff1d(kept, [best]), trial
        decision[best] = CHANGES
    seen = Environments(changes, np.sqrt(before), np.sqrt(now), moments.names)
    return replace(found, decision=decision, environments=seen)


class _Moments:
    """Second moments of [1, columns, label] in every environment."""

    def __init__(self, X: FloatArray, label: FloatArray, groups: NDArray[np.str_], weight: FloatArray) -> None:
        names, membership = np.unique(groups, return_inverse=True)
        large = np.bincount(membership) >= _LEAST_ROWS
        if large.sum() < 2:
            raise ValueError(
                f"groups names {len(names)} environments, {int(large.sum())} of them with ten rows or more; at least "
                "two such are needed. Without groups, one sample is screened."
            )
        self.num_columns, self.num_labels = X.shape[1], label.shape[1]
        both = np.hstack([np.ones((len(X), 1)), standardised(X), label])
        self.names = names[large]
        self.rows, joint, centred = [], [], []
        for number in np.flatnonzero(large):
            chosen = membership == number
            part, weights = both[chosen], weight[chosen]
            middle = part - weights @ part / weights.sum()
            self.rows.append(float(weights.sum()))
            joint.append(part.T @ (part * weights[:, None]))
            centred.append(middle.T @ (middle * weights[:, None]))
        self.joint, self.centred = np.array(joint), np.array(centred)
        self._labels = 1 + self.num_columns + np.arange(self.num_labels)

    def errors(self, columns: IndexArray) -> FloatArray:
        """Return the mean squared error in each environment of least squares fitted to all the others."""
        inputs = np.concatenate([[0], 1 + columns])
        errors = []
        for left_out in range(len(self.rows)):
            rest = self.joint.sum(axis=0) - self.joint[left_out]
            among = rest[np.ix_(inputs, inputs)]
            among = among + _RIDGE * np.trace(among) / len(among) * np.eye(len(inputs))
            slopes = np.linalg.solve(among, rest[np.ix_(inputs, self._labels)])
            here = self.joint[left_out]
            across = here[np.ix_(inputs, self._labels)]
            squares = np.diag(here)[self._labels].sum() - 2.0 * (slopes * across).sum()
            squares += (slopes * (here[np.ix_(inputs, inputs)] @ slopes)).sum()
            errors.append(max(squares, 0.0) / self.rows[left_out] / self.num_labels)
        return np.array(errors)

    def slope_tests(self, columns: IndexArray) -> FloatArray:
        """Return, per column, the p-value of "its slope is the same in all environments", the others' being shared.

        Levels may differ between environments. With several label functions, the smallest of their p-values counts,
        multiplied by their number.
        """
        pooled, inputs, others = self.centred.sum(axis=0), 1 + columns, len(self.rows) - 1
        among = pooled[np.ix_(inputs, inputs)]
        freedom = sum(self.rows) - len(self.rows) - len(inputs) - others
        if freedom < 1:
            return np.ones(len(columns))
        base = self._residual(among, pooled[np.ix_(inputs, self._labels)], pooled)
        p_values = []
        for place, column in enumerate(inputs):
            # Design: the columns, and the column once more for every environment but the first.
            extra = self.centred[1:, column]
            wide = np.zeros((len(inputs) + others, len(inputs) + others))
            wide[: len(inputs), : len(inputs)] = among
            wide[len(inputs) :, : len(inputs)] = extra[:, inputs]
            wide[: len(inputs), len(inputs) :] = extra[:, inputs].T
            wide[len(inputs) :, len(inputs) :] = np.diag(extra[:, inputs[place]])
            across = np.vstack([pooled[np.ix_(inputs, self._labels)], extra[:, self._labels]])
            rest = self._residual(wide, across, pooled)
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.maximum(base - rest, 0.0) / others / (np.maximum(rest, 1e-12) / freedom)
            p_values.append(min(1.0, self.num_labels * float(fdtrc(others, freedom, ratio).min())))
        return np.array(p_values)

    def _residual(self, among: FloatArray, across: FloatArray, pooled: FloatArray) -> FloatArray:
        among = among + _RIDGE * max(np.trace(among) / len(among), 1e-12) * np.eye(len(among))
        told: FloatArray = (across * np.linalg.solve(among, across)).sum(axis=0)
        rest: FloatArray = np.maximum(np.diag(pooled)[self._labels] - told, 0.0)
        return rest
