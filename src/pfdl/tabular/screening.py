"""Which columns of a table follow the label only because of how the sample was selected?

Selection that favours rows where a column V lies close to the label y makes V look like an *effect* of y. Effects and
causes of y leave different marks on the correlations among the columns:

* given y, an effect has little left in common with the other columns: y alone says most of what can be said about it;
* given y, the causes of y correlate *more*: they collide in y, so knowing y and one cause tells about the others.

:mod:`pfdl.tabular.evidence` measures both. This is the label-conditional decomposition: an extension of this project,
not part of the PFDL paper.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfdl.tabular.environments import Environments
from pfdl.tabular.evidence import Decomposer, Evidence, Given, linear_decomposer
from pfdl.tabular.moments import Moments

FloatArray = NDArray[np.float64]

# A little is forgiven: where other columns cause the causes, collision adds only a percent or two to what they share.
_COLLISION = 0.98

KEPT, FOLLOWS_LABEL, ISOLATED = "kept", "follows the label", "isolated"
CONSTANT, NEAR_COPY, CHANGES = "constant", "near copy of the label", "changes between environments"
IDENTIFIER = "identifies the rows"


class Outcome(enum.Enum):
    """What the screening of one sample came to. Columns are dropped in case of `SELECTION` alone."""

    SELECTION = "columns follow the label, and go"
    NO_SELECTION = "no column follows the label"
    TOO_SMALL = "too few rows or columns"
    CONSTANT_LABEL = "the label is constant"
    EXACT = "the columns determine the label exactly"
    AMBIGUOUS = "columns follow the label, but the others do not behave like its causes"
    FEW_LEFT = "columns follow the label, but too few would be left"
    COSTLY = "columns follow the label, but without them too little is explained"
    UNSTABLE = "columns follow the label, but not in every half of the rows"


@dataclass(frozen=True)
class Rules:
    """When a column is dropped.

    Attributes:
        alpha: level of the tests, divided by the number of columns.
        share_threshold: a column is a suspect where the label alone explains more than this share of what can be.
        ratio_threshold: a suspect is dropped where k/m lies below this.
        least_m: a column is judged only if the others explain at least this share of it: of a column that they hardly
            explain, the label tells most whatever it is.
        least_left: columns that must be left. With two, R's table of the movements of seals would lose a column (the
            latitude to be predicted, ``delta_long`` dropped) though its rows were not selected.
        decompose: how the columns are predicted from each other.
    """

    alpha: float = 0.01
    share_threshold: float = 0.5
    ratio_threshold: float = 0.6
    least_m: float = 0.15
    least_left: int = 3
    decompose: Decomposer = linear_decomposer


@dataclass(frozen=True)
class Screening:
    """What was found: one entry per column in every array.

    Attributes:
        m: share of the column that the other columns explain; NaN where it cannot be judged.
        k: the same once the label is known.
        share: of all that can be explained of the column, how much the label explains alone.
        relevance: p-value of "given all other columns, this one and the label have nothing in common".
        decision: ``KEPT``, ``FOLLOWS_LABEL``, ``ISOLATED``, ``CHANGES``, ``NEAR_COPY``, ``IDENTIFIER`` or
            ``CONSTANT``; the last three are kept.
        suspect: mask of the columns that looked like followers of the label, whatever became of them.
        outcome: the verdict.
        rows: rows of the table; with weights, how many they are worth.
        survival: share of the halves of the rows in which the column was found to follow the label, too; NaN where
            that was not asked.
        explained: share of the label that all columns explain linearly.
        explained_by_kept: the same without the columns that follow the label.
        environments: what known environments say, if there are any.
    """

    m: FloatArray
    k: FloatArray
    share: FloatArray
    relevance: FloatArray
    decision: NDArray[Any]
    suspect: NDArray[np.bool_]
    outcome: Outcome
    rows: float
    survival: FloatArray
    explained: float = math.nan
    explained_by_kept: float = math.nan
    environments: Environments | None = None

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Mask of the columns to use."""
        mask: NDArray[np.bool_] = ~np.isin(self.decision.astype(str), (FOLLOWS_LABEL, ISOLATED, CHANGES))
        return mask

    @property
    def followers(self) -> NDArray[np.bool_]:
        """Mask of the columns that were found to follow the label, and dropped."""
        mask: NDArray[np.bool_] = self.decision == FOLLOWS_LABEL
        return mask


def screen(
    X: FloatArray,
    label: FloatArray,
    weight: FloatArray | None = None,
    *,
    protected: NDArray[np.bool_] | None = None,
    rules: Rules | None = None,
) -> Screening:
    """Find the columns that follow the label in one sample, without the safety net.

    Args:
        X: columns, none constant and none a linear combination of others, of shape (n, p).
        label: functions of the label with full column rank, of shape (n, d).
        weight: weight of each row.
        protected: mask of columns that are never dropped.
        rules: when a column is dropped.

    Returns:
        The evidence and the decisions. Unless columns follow the label *and* the columns left behave like causes of
        it, every column is kept.
    """
    rules = rules or Rules()
    p = X.shape[1]
    indicator = _two_valued(X)
    protected = indicator if protected is None else protected | indicator
    moments = Moments.of(X, label, weight)
    if not label.shape[1] or p < 2 or moments.rows < 2 * (p + label.shape[1]) + 10:
        return nothing_found(p, Outcome.TOO_SMALL if label.shape[1] else Outcome.CONSTANT_LABEL, moments.rows)
    table = Evidence(moments, rules.decompose(X, label, moments), rules.alpha)
    first = table.given([])
    dropped, share = _drop_followers(table, first, rules, protected)
    found = Screening(
        m=first.m,
        k=first.k,
        share=share,
        relevance=table.relevance,
        decision=np.full(p, KEPT, dtype=object),
        suspect=np.isin(np.arange(p), dropped),
        outcome=Outcome.NO_SELECTION,
        rows=moments.rows,
        survival=np.full(p, np.nan),
    )
    if not dropped:
        return found
    judged = first.correlated & table.relevant & (first.m >= rules.least_m)
    if (judged & (share > rules.share_threshold) & ~protected & ~found.suspect).any():
        return replace(found, outcome=Outcome.AMBIGUOUS)
    return drop(found, found.suspect, X, label, moments, protected=protected, rules=rules)


def drop(
    found: Screening,
    followers: NDArray[np.bool_],
    X: FloatArray,
    label: FloatArray,
    moments: Moments,
    *,
    protected: NDArray[np.bool_],
    rules: Rules,
) -> Screening:
    """Drop followers of the label if enough columns are left and these behave like causes of it."""
    kept = np.flatnonzero(~followers)
    if len(kept) < rules.least_left:
        return replace(found, decision=np.full(len(followers), KEPT, dtype=object), outcome=Outcome.FEW_LEFT)
    of_kept = moments.subset(kept)
    table = Evidence(of_kept, rules.decompose(X[:, kept], label, of_kept), rules.alpha)
    rest, causes = table.given([]), table.relevant
    # Causes collide in the label, at least two that are quantities: they have more in common once it is known.
    if (causes & ~_two_valued(X[:, kept])).sum() < 2 or rest.k[causes].sum() <= _COLLISION * rest.m[causes].sum():
        return replace(found, decision=np.full(len(followers), KEPT, dtype=object), outcome=Outcome.AMBIGUOUS)
    decision = np.full(len(followers), KEPT, dtype=object)
    decision[followers] = FOLLOWS_LABEL
    adds_nothing = table.relevance > rules.alpha  # undivided: to fail a strict test is not to be useless
    decision[kept[adds_nothing & ~rest.collides & ~protected[kept]]] = ISOLATED
    return replace(found, decision=decision, outcome=Outcome.SELECTION)


def _two_valued(X: FloatArray) -> NDArray[np.bool_]:
    """Return whether each column has two values: an indicator cannot lie close to a label and is never dropped."""
    low, high = X.min(axis=0), X.max(axis=0)
    mask: NDArray[np.bool_] = ((low == X) | (high == X)).all(axis=0)
    return mask


def nothing_found(p: int, outcome: Outcome, rows: float) -> Screening:
    """Return the result for a table in which nothing can be measured: every column is kept."""
    unknown = np.full(p, np.nan)
    return Screening(
        unknown,
        unknown,
        unknown,
        unknown,
        np.full(p, KEPT, dtype=object),
        np.zeros(p, dtype=bool),
        outcome,
        rows,
        unknown,
    )


def _drop_followers(
    table: Evidence, first: Given, rules: Rules, protected: NDArray[np.bool_]
) -> tuple[list[int], FloatArray]:
    """Drop the clearest follower of the label, look again given what was dropped, until none is left.

    Looking again is what separates the rest: a cause may resemble the label merely because it resembles a follower, and
    once that is accounted for it no longer does.
    """
    dropped: list[int] = []
    share = first.share.copy()
    fades = first.k < rules.ratio_threshold * first.m
    eligible = first.correlated & (first.m >= rules.least_m) & table.relevant & fades & ~protected
    now = first
    while True:
        left = np.setdiff1d(np.arange(len(share)), dropped)
        share[left] = now.share[left]
        candidates = left[(eligible & (share > rules.share_threshold))[left]]
        if not len(candidates) or len(left) == 1:
            return dropped, share
        dropped.append(int(candidates[np.argmax(share[candidates])]))
        now = table.given(dropped)
