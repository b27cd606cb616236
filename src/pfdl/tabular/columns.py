"""Screening a table as it comes: constant columns, copies and one-hot sets included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pfdl.tabular.moments import independent_columns
from pfdl.tabular.screening import (
    CONSTANT,
    FOLLOWS_LABEL,
    KEPT,
    Decomposer,
    Rules,
    Screening,
    linear_decomposer,
    screen,
)

FloatArray = NDArray[np.float64]

_WEIGHT_THAT_COUNTS = 1e-6


def screen_table(
    X: FloatArray,
    label: FloatArray,
    weight: FloatArray | None = None,
    *,
    protected: NDArray[np.bool_] | None = None,
    decompose: Decomposer = linear_decomposer,
    rules: Rules | None = None,
) -> Screening:
    """Screen any table: what cannot be judged is taken out first and put back after.

    A constant column is kept, as it does no harm. A column that can be computed from others is judged with them: it is
    dropped if a dropped column goes into it, and kept otherwise.
    """
    protected = np.zeros(X.shape[1], dtype=bool) if protected is None else protected
    if weight is not None and not (weight > 0).all():  # rows without weight are no rows
        counts = weight > 0
        X, label, weight = X[counts], label[counts], weight[counts]
    independent, combination = independent_columns(X, weight)
    core = X if len(independent) == X.shape[1] else X[:, independent]
    found = screen(core, label, weight, protected=protected[independent], decompose=decompose, rules=rules)
    if core is X:
        return found
    decision = np.full(X.shape[1], KEPT, dtype=object)
    uses = np.abs(combination) > _WEIGHT_THAT_COUNTS
    decision[~uses.any(axis=0)] = CONSTANT
    decision[uses[found.decision == FOLLOWS_LABEL].any(axis=0) & ~protected] = FOLLOWS_LABEL
    decision[independent] = found.decision
    suspect = uses[found.suspect].any(axis=0) & ~protected

    def spread(values: FloatArray) -> FloatArray:
        full = np.full(X.shape[1], np.nan)
        full[independent] = values
        return full

    return replace(
        found,
        m=spread(found.m),
        k=spread(found.k),
        share=spread(found.share),
        relevance=spread(found.relevance),
        decision=decision,
        suspect=suspect,
    )
