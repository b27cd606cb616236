"""Which columns surely follow the label because of how the rows were selected?

The strictest question, asked by ``drop="sure"`` only. Selection that favours rows where a column V
lies close to the label y makes V look like an effect of y. A column surely follows the label where
it looks like an effect, the columns left behave like causes (they collide in y: given y they keep
in common what they had, or gain), enough is left, and nine of ten halves of the rows agree.

=========================  =====  ==============================================================
constant                   value  what fails without it
=========================  =====  ==============================================================
SHARE_THRESHOLD              0.5  of a follower the label says more than the others
RATIO_THRESHOLD              0.6  on random factor tables k/m < 0.6 alone drops a cause in most
_LEAST_M                    0.15  of a column that the others hardly explain, the label tells most
_LEAST_LEFT                    3  with two, ``ggplot2/seals`` would lose a column
_COLLISION                  0.98  causes of one sign lose a little of what they share
_COLLISION_BESIDE_CLEAR      0.9  house prices: 0.93 to 0.95
_LEAST_EXPLAINED             0.4  CPS 1988: the true columns explain 0.44 of all (r = 2)
_LEAST_SURVIVAL              0.9  a verdict that halves of the rows do not share
_CLEAR_RATIO                 0.1  this and what is below: chosen on the design half of R's tables
=========================  =====  ==============================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pfdl.tabular.moments import (
    ALPHA,
    ColumnShares,
    Evidence,
    FloatArray,
    IndexArray,
    Mask,
    Moments,
    adds_to_label,
)

SHARE_THRESHOLD, RATIO_THRESHOLD = 0.5, 0.6
_LEAST_M, _LEAST_LEFT = 0.15, 3
_COLLISION, _COLLISION_BESIDE_CLEAR = 0.98, 0.9
_LEAST_EXPLAINED, _EXACT, _LEAST_SURVIVAL = 0.4, 0.999, 0.9
_CLEAR_RATIO, _CLEAR_SHARE = 0.1, 0.9
_CLEAR_M, _CLEAR_LABEL, _CLEAR_VALUES = 0.01, 0.16, 10
_HALVES, _MOST_ROWS_OF_A_HALF = 20, 50_000


@dataclass(frozen=True)
class SureFollowers:
    """The columns that surely follow the label.

    Attributes:
        columns: Their mask.
        isolated: Mask of the columns that add nothing to what is kept then.
        survival: Share of the halves of the rows in which each column surely follows the label; NaN
            where no half was asked.
    """

    columns: Mask
    isolated: Mask
    survival: FloatArray


@dataclass(frozen=True)
class Candidates:
    """What one sample of the rows says.

    Attributes:
        likely: Mask of the columns beside which the others behave like causes of the label.
        clear: Mask of those that look like an effect and like nothing else.
    """

    likely: Mask
    clear: Mask


def sure_followers(
    X: FloatArray,
    label: FloatArray,
    weight: FloatArray,
    moments: Moments,
    number: bool,
    seed: int,
) -> SureFollowers:
    """Find the columns that surely follow the label, of linearly independent ones."""
    p = X.shape[1]
    nothing = np.zeros(p, dtype=bool)
    unknown = np.full(p, np.nan)
    candidates = find_candidates(X, moments, number)
    explained = _explained(moments, ~nothing, number)
    if not candidates.likely.any() or explained > _EXACT:
        return SureFollowers(nothing, nothing, unknown)
    survival = _survival(X, label, weight, number, seed)
    stable = candidates.likely & (survival >= _LEAST_SURVIVAL)
    all_clear = (candidates.clear | ~stable).all()
    collision = _COLLISION_BESIDE_CLEAR if all_clear else _COLLISION
    if not stable.any() or not _others_collide(X, moments, stable, collision):
        return SureFollowers(nothing, nothing, survival)
    if _explained(moments, ~stable, number) < _LEAST_EXPLAINED * explained:
        return SureFollowers(nothing, nothing, survival)
    return SureFollowers(stable, _isolated(moments, stable), survival)


def find_candidates(X: FloatArray, moments: Moments, number: bool) -> Candidates:
    """Find what looks like following the label in one sample of the rows."""
    evidence = Evidence(moments)
    first = evidence.given([])
    quantity = _quantities(X)
    judged = first.correlated & evidence.relevant & (first.m >= _LEAST_M)
    eligible = judged & (first.k < RATIO_THRESHOLD * first.m) & quantity
    followers, share = _followers(evidence, first, eligible)
    clear = _clear(X, evidence, first, quantity) if number else np.zeros_like(followers)
    others = judged & (share > SHARE_THRESHOLD) & quantity & ~followers
    if followers.any() and not others.any() and _others_collide(X, moments, followers, _COLLISION):
        return Candidates(followers, clear)
    well_judged = clear & (first.m >= _LEAST_M)
    if well_judged.any() and _others_collide(X, moments, well_judged, _COLLISION_BESIDE_CLEAR):
        return Candidates(well_judged, clear)
    return Candidates(np.zeros_like(followers), clear)


def _quantities(X: FloatArray) -> Mask:
    """Return the columns of more than two values: an indicator cannot lie close to a label."""
    return np.asarray(~((X.min(axis=0) == X) | (X.max(axis=0) == X)).all(axis=0))


def _followers(evidence: Evidence, first: ColumnShares, eligible: Mask) -> tuple[Mask, FloatArray]:
    """Take the clearest follower of the label, look again given what was taken, until none is left.

    Looking again is what separates the rest: a cause may resemble the label merely because it
    resembles a follower, and once that is accounted for it no longer does.
    """
    columns = np.arange(len(eligible))
    taken: list[int] = []
    now = first
    share = first.share.copy()
    while True:
        left = np.setdiff1d(columns, taken)
        share[left] = now.share[left]
        candidates = left[(eligible & (share > SHARE_THRESHOLD))[left]]
        if not len(candidates) or len(left) == 1:
            return np.isin(columns, taken), share
        taken.append(int(candidates[np.argmax(share[candidates])]))
        now = evidence.given(taken)


def _clear(X: FloatArray, evidence: Evidence, first: ColumnShares, quantity: Mask) -> Mask:
    """Return the columns that given the label have nothing to do with the others, though these
    predict the label: else there would be nothing for a cause to collide with.
    """
    moments = evidence.moments
    clear = first.correlated & (first.m >= _CLEAR_M) & evidence.relevant & quantity
    clear &= (first.k < _CLEAR_RATIO * first.m) & (first.share > _CLEAR_SHARE)
    clear &= moments.residual_variance(moments.label) <= 1.0 - _CLEAR_LABEL
    for j in np.flatnonzero(clear):
        clear[j] = len(np.unique(X[:, j])) >= _CLEAR_VALUES
    if (~clear).sum() < _LEAST_LEFT or not adds_to_label(moments, np.flatnonzero(clear)):
        return np.zeros_like(clear)
    return np.asarray(clear)


def _explained(moments: Moments, columns: Mask, number: bool) -> float:
    """Return the share of the label that a regression on some columns explains."""
    return moments.explained_share(np.flatnonzero(columns), 1 if number else None)


def _left(moments: Moments, followers: Mask) -> tuple[IndexArray, Evidence]:
    kept = np.flatnonzero(~followers)
    return kept, Evidence(moments.subset(kept))


def _others_collide(X: FloatArray, moments: Moments, followers: Mask, collision: float) -> bool:
    """Return whether enough columns would be left, and these behave like causes of the label."""
    if (~followers).sum() < _LEAST_LEFT:
        return False
    kept, evidence = _left(moments, followers)
    rest = evidence.given([])
    causes = evidence.relevant
    if (causes & _quantities(X[:, kept])).sum() < 2:
        return False
    return bool(rest.k[causes].sum() > collision * rest.m[causes].sum())


def _isolated(moments: Moments, followers: Mask) -> Mask:
    """Return the columns that nothing goes with given the label, and that add nothing to the rest.

    Each is tested at the level of a single test, not of all columns together: a column must not go
    because it failed a stricter one.
    """
    kept, evidence = _left(moments, followers)
    isolated = np.zeros(len(followers), dtype=bool)
    isolated[kept] = (evidence.relevance > ALPHA) & ~evidence.given([]).collides
    return isolated


def _survival(
    X: FloatArray, label: FloatArray, weight: FloatArray, number: bool, seed: int
) -> FloatArray:
    """Return the share of the halves of the rows in which each column likely follows the label."""
    counts = np.zeros(X.shape[1])
    for rows in halves(len(X), seed):
        half = Moments.of(X[rows], label[rows], weight[rows])
        if half.rows >= 2 * len(half.mean) + 10:
            counts += find_candidates(X[rows], half, number).likely
    return counts / _HALVES


def halves(n: int, seed: int) -> Iterator[NDArray[np.intp]]:
    """Yield the rows of each half, in complementary pairs."""
    rng = np.random.default_rng(seed)
    size = min(n // 2, _MOST_ROWS_OF_A_HALF)
    for _ in range(_HALVES // 2):
        order = rng.permutation(n)
        yield np.sort(order[:size])
        yield np.sort(order[-size:])
