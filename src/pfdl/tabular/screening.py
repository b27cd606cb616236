"""Which columns of a table follow the label only because of how the sample was selected?

Selection that favours rows where a column V lies close to the label y makes V look like an *effect* of y. Effects and
causes of y leave different marks on the correlations among the columns:

* given y, an effect has little left in common with the other columns: y alone says most of what can be said about it;
* given y, the causes of y correlate *more*: they collide in y, so knowing y and one cause tells about the others.

:mod:`pfdl.tabular.evidence` measures both. This is the label-conditional decomposition: an extension of this project,
not part of the PFDL paper. Suspicion has three grades. A *suspect* looks like an effect; a *strong* suspect looks like
nothing else; a follower is *sure* where, besides, the columns left behave like causes and halves of the rows agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pfdl.tabular.evidence import ColumnShares, Evidence
from pfdl.tabular.findings import (
    AS_ASKED,
    CONSTANT,
    FOLLOWS_LABEL,
    ISOLATED,
    KEPT,
    LEVELS,
    NEAR_COPY,
    STRONG,
    SURE,
    SUSPECT,
    SUSPICIOUS,
    Drop,
    FloatArray,
    Mask,
    Outcome,
    Rules,
    Screening,
)
from pfdl.tabular.moments import Moments, independent_columns

# What makes a suspicion strong, chosen on the design half of the real tables: the label
# leaves the other columns less than a tenth of what they knew, and says nine tenths of all that can be said.
_STRONG_RATIO, _STRONG_SHARE = 0.1, 0.9
_STRONG_M, _STRONG_LABEL_SHARE, _STRONG_VALUES = 0.01, 0.16, 10
# What the causes must keep in common once the label is known. Causes of one sign that correlate lose a little of it
# (house prices: 0.93 to 0.95); beside a suspect that lost all of it they are still causes, beside a weaker one not.
_COLLISION_BESIDE_STRONG, _COLLISION = 0.9, 0.98
_COPY, _EXACT, _LEAST_SURVIVAL = 0.97, 0.999, 0.9
# Not one half: without a column that was injected into CPS 1988 the true ones explain 0.49 to 0.51 (r = 1.7) and 0.44
# (r = 2) of what all explain, and it has to go. On MMADS that share is 0.51 or more in every table.
_LEAST_EXPLAINED = 0.4
_MOST_ROWS_OF_A_HALF = 50_000
_WEIGHT_THAT_COUNTS = 1e-6


def screen_table(
    X: FloatArray,
    label: FloatArray,
    weight: FloatArray | None = None,
    *,
    drop: Drop = "sure",
    protected: Mask | None = None,
    unjudged: NDArray[np.object_] | None = None,
    rules: Rules | None = None,
) -> Screening:
    """Grade every column of a table as it comes, and decide which to leave out.

    What cannot be judged is set aside first. A constant column is kept, as it does no harm. A column of which the label
    explains 97 % and more is kept and flagged: no noisy selection makes one, and whether it is computed from the label
    or the label from it, the table cannot tell. A column that can be computed from others is judged with them: it
    shares the strongest suspicion on a column that goes into it.

    Args:
        X: columns, of shape (n, p).
        label: functions of the label with full column rank, of shape (n, d).
        weight: weight of each row.
        drop: the weakest suspicion on which a column is left out.
        protected: mask of columns that are never dropped.
        unjudged: the decision on columns that are not to be judged, empty for the others.
        rules: when a column is suspected.
    """
    rules, p = rules or Rules(), X.shape[1]
    protected = np.zeros(p, dtype=bool) if protected is None else protected
    unjudged = np.full(p, "", dtype=object) if unjudged is None else unjudged
    aside = (unjudged != "").astype(bool)
    if weight is not None and not (weight > 0).all():  # rows without weight are no rows
        counts = weight > 0
        X, label, weight = X[counts], label[counts], weight[counts]
    if not len(X):
        return _nothing(p, Outcome.TOO_SMALL, 0.0)
    moments = Moments.of(X, label, weight)
    copies = _near_copies(moments) & ~aside
    independent, combination = independent_columns(moments, copies | aside)
    core = X if len(independent) == p else X[:, independent]
    found, isolated = _screen(core, label, weight, moments.subset(independent), rules)
    uses = np.abs(combination) > _WEIGHT_THAT_COUNTS
    grade = np.max(uses * found.grade[:, None], axis=0, initial=0).astype(np.int8)
    decision = np.where(grade > 0, SUSPICIOUS, KEPT).astype(object)
    decision[~uses.any(axis=0)] = CONSTANT
    decision[copies] = NEAR_COPY
    decision[aside] = unjudged[aside]
    goes = grade >= LEVELS[drop]
    decision[goes] = np.where(protected[goes], AS_ASKED, FOLLOWS_LABEL)
    if (decision == FOLLOWS_LABEL).any():
        alone = independent[isolated]
        decision[alone[~protected[alone]]] = ISOLATED

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
        grade=grade,
        decision=decision,
    )


def _near_copies(moments: Moments) -> Mask:
    p = moments.num_columns
    if not len(moments.label) or moments.rows < 2 * len(moments.label) + 10:
        return np.zeros(p, dtype=bool)
    varies = np.diag(moments.joint)[:p] > 0.5
    copies: Mask = varies & (moments.residual_variance(moments.label) < 1.0 - _COPY)
    return copies


def _screen(
    X: FloatArray, label: FloatArray, weight: FloatArray | None, moments: Moments, rules: Rules
) -> tuple[Screening, Mask]:
    """Grade independent columns. Returns what was found, and the mask of those that add nothing once followers go."""
    p, nobody = X.shape[1], np.zeros(X.shape[1], dtype=bool)
    if not label.shape[1] or p < 2 or moments.rows < 2 * (p + label.shape[1]) + 10:
        return _nothing(p, Outcome.TOO_SMALL if label.shape[1] else Outcome.CONSTANT_LABEL, moments.rows), nobody
    sample = _judge(X, moments, rules)
    grade = np.where(sample.strong, STRONG, np.where(sample.suspect, SUSPECT, 0)).astype(np.int8)
    found = replace(
        _nothing(p, sample.outcome, moments.rows),
        m=sample.given.m,
        k=sample.given.k,
        share=sample.share,
        relevance=sample.relevance,
        grade=grade,
    )
    if not grade.any():
        return found, nobody
    found = replace(found, explained=moments.explained_share(np.arange(p), rules.goal))
    isolated = nobody
    if found.explained > _EXACT:  # the label was computed from the columns: nothing follows it
        found = replace(found, grade=np.minimum(grade, SUSPECT), outcome=Outcome.EXACT)
    elif sample.sure.any():
        survival = _survival(X, label, weight, rules)
        stable = sample.sure & (survival >= _LEAST_SURVIVAL)
        without = moments.explained_share(np.flatnonzero(~stable), rules.goal)
        outcome, isolated = Outcome.UNSTABLE, nobody
        if stable.any():
            outcome, isolated = _confirm(X, moments, stable, _collision(stable, sample.strong), rules)
        if outcome is Outcome.SELECTION and without < _LEAST_EXPLAINED * found.explained:
            outcome = Outcome.COSTLY
        if outcome is Outcome.SELECTION:
            grade = np.where(stable, SURE, grade).astype(np.int8)
        else:
            isolated = nobody
        found = replace(found, survival=survival, outcome=outcome, grade=grade)
    suspected = found.grade == found.grade.max()
    return replace(found, explained_without=moments.explained_share(np.flatnonzero(~suspected), rules.goal)), isolated


def _nothing(p: int, outcome: Outcome, rows: float) -> Screening:
    """Return the result for a table in which nothing was measured: every column is kept."""
    grade, decision, unknown = np.zeros(p, dtype=np.int8), np.full(p, KEPT, dtype=object), np.full(p, np.nan)
    return Screening(unknown, unknown, unknown, unknown, grade, decision, unknown, outcome, rows)


class _Sample(NamedTuple):
    """What one sample says, before halves of it are asked."""

    given: ColumnShares
    share: FloatArray
    relevance: FloatArray
    suspect: Mask
    strong: Mask
    sure: Mask
    outcome: Outcome


def _judge(X: FloatArray, moments: Moments, rules: Rules) -> _Sample:
    table = Evidence(moments, rules.alpha)
    first, indicator = table.given([]), _two_valued(X)
    suspect, share = _suspects(table, first, indicator, rules)
    strong = _strong_suspects(X, table, first, indicator, rules)
    sure, outcome = np.zeros(X.shape[1], dtype=bool), Outcome.NO_SELECTION
    if suspect.any():
        judged = first.correlated & table.relevant & (first.m >= rules.least_m)
        outcome = Outcome.AMBIGUOUS
        if not (judged & (share > rules.share_threshold) & ~indicator & ~suspect).any():
            outcome, _ = _confirm(X, moments, suspect, _COLLISION, rules)
            sure = suspect if outcome is Outcome.SELECTION else sure
    clear = strong & (first.m >= rules.least_m)
    if clear.any() and not sure.any():
        outcome, _ = _confirm(X, moments, clear, _COLLISION_BESIDE_STRONG, rules)
        sure = clear if outcome is Outcome.SELECTION else sure
    if strong.any() and outcome is Outcome.NO_SELECTION:
        outcome = Outcome.AMBIGUOUS
    return _Sample(first, share, table.relevance, suspect | strong, strong, sure, outcome)


def _collision(followers: Mask, strong: Mask) -> float:
    return _COLLISION_BESIDE_STRONG if (strong | ~followers).all() else _COLLISION


def _suspects(table: Evidence, first: ColumnShares, indicator: Mask, rules: Rules) -> tuple[Mask, FloatArray]:
    """Take the clearest follower of the label, look again given what was taken, until none is left.

    Looking again is what separates the rest: a cause may resemble the label merely because it resembles a follower, and
    once that is accounted for it no longer does.
    """
    taken: list[int] = []
    share = first.share.copy()
    fades = first.k < rules.ratio_threshold * first.m
    eligible = first.correlated & (first.m >= rules.least_m) & table.relevant & fades & ~indicator
    now = first
    while True:
        left = np.setdiff1d(np.arange(len(share)), taken)
        share[left] = now.share[left]
        candidates = left[(eligible & (share > rules.share_threshold))[left]]
        if not len(candidates) or len(left) == 1:
            return np.isin(np.arange(len(share)), taken), share
        taken.append(int(candidates[np.argmax(share[candidates])]))
        now = table.given(taken)


def _strong_suspects(X: FloatArray, table: Evidence, first: ColumnShares, indicator: Mask, rules: Rules) -> Mask:
    """Return the columns that given the label have nothing to do with the others, though these tell of the label.

    A cause of the label does not look like that: it collides with the others in it. So the others must add to the
    prediction of the label, given the suspects; else there is nothing to collide with.
    """
    moments = table.moments
    if not rules.may_be_strong:
        return np.zeros(moments.num_columns, dtype=bool)
    strong = first.correlated & (first.m >= _STRONG_M) & table.relevant & ~indicator
    strong &= (first.k < _STRONG_RATIO * first.m) & (first.share > _STRONG_SHARE)
    strong &= moments.residual_variance(moments.label) <= 1.0 - _STRONG_LABEL_SHARE
    for j in np.flatnonzero(strong):
        strong[j] = len(np.unique(X[:, j])) >= _STRONG_VALUES
    if (~strong).sum() < rules.least_left or not table.adds_to_label(np.flatnonzero(strong), rules.goal):
        return np.zeros(len(strong), dtype=bool)
    return strong


def _confirm(X: FloatArray, moments: Moments, followers: Mask, collision: float, rules: Rules) -> tuple[Outcome, Mask]:
    """Ask whether enough columns would be left, and whether these behave like causes of the label.

    Returns:
        The outcome, and the mask of the columns that are isolated then: they add nothing to what is kept.
    """
    kept, isolated = np.flatnonzero(~followers), np.zeros(len(followers), dtype=bool)
    if len(kept) < rules.least_left:
        return Outcome.FEW_LEFT, isolated
    table = Evidence(moments.subset(kept), rules.alpha)
    rest, causes = table.given([]), table.relevant
    # Causes collide in the label, at least two that are quantities: they keep in common what they had, or gain.
    if (causes & ~_two_valued(X[:, kept])).sum() < 2 or rest.k[causes].sum() <= collision * rest.m[causes].sum():
        return Outcome.AMBIGUOUS, isolated
    isolated[kept] = (table.relevance > rules.alpha) & ~rest.collides  # undivided: to fail a strict test is no proof
    return Outcome.SELECTION, isolated


def _survival(X: FloatArray, label: FloatArray, weight: FloatArray | None, rules: Rules) -> FloatArray:
    counts = np.zeros(X.shape[1])
    for rows in _halves(len(X), rules):
        half = Moments.of(X[rows], label[rows], None if weight is None else weight[rows])
        if half.rows >= 2 * (X.shape[1] + label.shape[1]) + 10:
            counts += _judge(X[rows], half, rules).sure
    return counts / rules.resamples


def _halves(n: int, rules: Rules) -> Iterator[NDArray[np.intp]]:
    rng = np.random.default_rng(rules.seed)
    size = min(n // 2, _MOST_ROWS_OF_A_HALF)
    for number in range(rules.resamples):
        if number % 2 == 0:
            order = rng.permutation(n)
        yield np.sort(order[:size] if number % 2 == 0 else order[-size:])


def _two_valued(X: FloatArray) -> Mask:
    """Return whether each column has two values: an indicator cannot lie close to a label and is never dropped."""
    low, high = X.min(axis=0), X.max(axis=0)
    mask: Mask = ((low == X) | (high == X)).all(axis=0)
    return mask
