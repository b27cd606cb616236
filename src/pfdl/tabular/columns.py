"""Screening a table as it comes: constant columns, copies, one-hot sets and near copies of the label included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pfdl.tabular.environments import compare_environments
from pfdl.tabular.moments import Moments, independent_columns
from pfdl.tabular.safety import SafetyNet, screen_safely
from pfdl.tabular.screening import (
    CHANGES,
    CONSTANT,
    FOLLOWS_LABEL,
    KEPT,
    NEAR_COPY,
    Decomposer,
    Rules,
    Screening,
    linear_decomposer,
)

FloatArray = NDArray[np.float64]

_WEIGHT_THAT_COUNTS = 1e-6
_COPY = 0.97


def screen_table(
    X: FloatArray,
    label: FloatArray,
    weight: FloatArray | None = None,
    *,
    goal: int = 1,
    protected: NDArray[np.bool_] | None = None,
    decompose: Decomposer = linear_decomposer,
    rules: Rules | None = None,
    net: SafetyNet | None = None,
) -> Screening:
    """Screen any table: what cannot be judged is taken out first and put back after.

    A constant column is kept, as it does no harm. A column of which the label explains 97 % and more is kept and
    flagged: no noisy selection makes one, and whether it is computed from the label or the label from it, the table
    cannot tell. A column that can be computed from others is judged with them: it is dropped if a dropped column goes
    into it, and kept otherwise.
    """
    p = X.shape[1]
    protected = np.zeros(p, dtype=bool) if protected is None else protected
    if weight is not None and not (weight > 0).all():  # rows without weight are no rows
        counts = weight > 0
        X, label, weight = X[counts], label[counts], weight[counts]
    copies = _near_copies(X, label, weight)
    independent, combination = independent_columns(np.where(copies, 0.0, X) if copies.any() else X, weight)
    core = X if len(independent) == p else X[:, independent]
    found = screen_safely(
        core,
        label,
        weight,
        goal=goal,
        protected=protected[independent],
        decompose=decompose,
        rules=rules,
        net=net,
    )
    if core is X:
        return found
    decision = np.full(p, KEPT, dtype=object)
    uses = np.abs(combination) > _WEIGHT_THAT_COUNTS
    decision[~uses.any(axis=0)] = CONSTANT
    decision[copies] = NEAR_COPY
    decision[uses[found.followers].any(axis=0) & ~protected] = FOLLOWS_LABEL
    decision[independent] = found.decision
    suspect = uses[found.suspect].any(axis=0) & ~protected

    def spread(values: FloatArray) -> FloatArray:
        full = np.full(p, np.nan)
        full[independent] = values
        return full

    return replace(
        found,
        m=spread(found.m),
        k=spread(found.k),
        share=spread(found.share),
        relevance=spread(found.relevance),
        survival=spread(found.survival),
        decision=decision,
        suspect=suspect,
    )


def compare_table(
    found: Screening,
    X: FloatArray,
    label: FloatArray,
    groups: NDArray[np.object_],
    weight: FloatArray | None = None,
    *,
    goal: int = 1,
    protected: NDArray[np.bool_],
    alpha: float,
) -> Screening:
    """Add the evidence of known environments on the columns that one sample gave no reason to drop."""
    if not label.shape[1]:
        return found
    judged = np.flatnonzero(found.kept & (found.decision != CONSTANT))
    seen = compare_environments(X[:, judged], label[:, :goal], groups, weight, protected=protected[judged], alpha=alpha)
    decision = found.decision.copy()
    decision[judged[seen.dropped]] = CHANGES
    changes = np.full(X.shape[1], np.nan)
    changes[judged] = seen.changes
    dropped = decision == CHANGES
    return replace(found, decision=decision, environments=replace(seen, changes=changes, dropped=dropped))


def _near_copies(X: FloatArray, label: FloatArray, weight: FloatArray | None) -> NDArray[np.bool_]:
    moments = Moments.of(X, label, weight)
    if not label.shape[1] or moments.rows < 2 * label.shape[1] + 10:
        return np.zeros(X.shape[1], dtype=bool)
    varies = np.diag(moments.joint)[: X.shape[1]] > 0.5
    copies: NDArray[np.bool_] = varies & (moments.residual_variance(moments.label) < 1.0 - _COPY)
    return copies
