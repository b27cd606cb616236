"""Screening a table as it comes, with constant columns, copies, one-hot sets, identifiers, near copies of the label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pfdl.tabular.environments import compare_environments
from pfdl.tabular.moments import Moments, independent_columns
from pfdl.tabular.safety import SafetyNet, screen_safely
from pfdl.tabular.screening import CHANGES, CONSTANT, FOLLOWS_LABEL, IDENTIFIER, KEPT, NEAR_COPY, Rules, Screening

FloatArray = NDArray[np.float64]

_WEIGHT_THAT_COUNTS = 1e-6
_COPY = 0.97
_IDENTIFIERS = {"id", "index", "row", "rownames", "rownumber", "rownum", "unnamed:0", "key", "obs", "case", "no"}


def screen_table(
    X: FloatArray,
    label: FloatArray,
    weight: FloatArray | None = None,
    *,
    goal: int = 1,
    protected: NDArray[np.bool_] | None = None,
    identifiers: NDArray[np.bool_] | None = None,
    rules: Rules | None = None,
    net: SafetyNet | None = None,
) -> Screening:
    """Screen any table: what cannot be judged is taken out first and put back after.

    A constant column is kept, as it does no harm. A column of which the label explains 97 % and more is kept and
    flagged: no noisy selection makes one, and whether it is computed from the label or the label from it, the table
    cannot tell. So is a column of the mask ``identifiers``, which says nothing about other rows. A column that can be
    computed from others is judged with them: it is dropped if a dropped column goes into it, and kept otherwise.
    """
    p = X.shape[1]
    protected = np.zeros(p, dtype=bool) if protected is None else protected
    if weight is not None and not (weight > 0).all():  # rows without weight are no rows
        counts = weight > 0
        X, label, weight = X[counts], label[counts], weight[counts]
    identifiers = np.zeros(p, dtype=bool) if identifiers is None else identifiers
    copies = _near_copies(X, label, weight) & ~identifiers
    aside = copies | identifiers
    independent, combination = independent_columns(np.where(aside, 0.0, X) if aside.any() else X, weight)
    core = X if len(independent) == p else X[:, independent]
    found = screen_safely(core, label, weight, goal=goal, protected=protected[independent], rules=rules, net=net)
    if core is X:
        return found
    decision = np.full(p, KEPT, dtype=object)
    uses = np.abs(combination) > _WEIGHT_THAT_COUNTS
    decision[~uses.any(axis=0)] = CONSTANT
    decision[copies], decision[identifiers] = NEAR_COPY, IDENTIFIER
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
    judged = np.flatnonzero(found.kept & (found.decision != CONSTANT) & (found.decision != IDENTIFIER))
    seen = compare_environments(X[:, judged], label[:, :goal], groups, weight, protected=protected[judged], alpha=alpha)
    decision = found.decision.copy()
    decision[judged[seen.dropped]] = CHANGES
    changes = np.full(X.shape[1], np.nan)
    changes[judged] = seen.changes
    dropped = decision == CHANGES
    return replace(found, decision=decision, environments=replace(seen, changes=changes, dropped=dropped))


def identifying_columns(X: FloatArray, names: Sequence[str]) -> NDArray[np.bool_]:
    """Return the mask of the columns that number or identify the rows."""
    return np.array([identifies_rows(column, name) for column, name in zip(X.T, names, strict=True)], dtype=bool)


def identifies_rows(values: NDArray[np.floating] | NDArray[np.integer], name: str) -> bool:
    """Return whether a column numbers the rows: whole numbers, each once, in even steps or named as a key.

    A quantity may be distinct in every row, too; what gives an identifier away is that its values rise (or fall) by the
    same step, or that its name says so.
    """
    if len(values) < 3 or not np.isfinite(values).all() or (values != np.round(values)).any():
        return False
    steps = np.diff(values.astype(np.float64))
    if (steps == steps[0]).all():
        return bool(steps[0] != 0)
    plain = name.strip().lower().translate(str.maketrans("", "", " _."))
    return (plain in _IDENTIFIERS or plain.endswith("id")) and len(np.unique(values)) == len(values)


def _near_copies(X: FloatArray, label: FloatArray, weight: FloatArray | None) -> NDArray[np.bool_]:
    moments = Moments.of(X, label, weight)
    if not label.shape[1] or moments.rows < 2 * label.shape[1] + 10:
        return np.zeros(X.shape[1], dtype=bool)
    varies = np.diag(moments.joint)[: X.shape[1]] > 0.5
    copies: NDArray[np.bool_] = varies & (moments.residual_variance(moments.label) < 1.0 - _COPY)
    return copies
