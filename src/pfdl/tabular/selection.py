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
from typing import NamedTuple

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

SHARE_THRESHOLD = 0.5
RATIO_THRESHOLD = 0.6
_LEAST_M = 0.15
_LEAST_LEFT = 3
_COLLISION = 0.98
_COLLISION_BESIDE_CLEAR = 0.9
_LEAST_EXPLAINED = 0.4
_LEAST_SURVIVAL = 0.9
_CLEAR_RATIO = 0.1
_CLEAR_SHARE = 0.9
_CLEAR_M = 0.01
_CLEAR_LABEL = 0.16
_CLEAR_VALUES = 10
# Where the columns explain the label to this share, it is their sum, not tied to one of them.
_EXACT = 0.999
_HALVES = 20
_MOST_ROWS_OF_A_HALF = 50_000


@dataclass(frozen=True)
class Sample:
    """Rows of a table.

    Attributes:
        X: Linearly independent columns.
        label: Functions of the label.
        weight: Weight of each row.
        number: Whether the label is a number, not a class.
    """

    X: FloatArray
    label: FloatArray
    weight: FloatArray
    number: bool

    def moments(self) -> Moments:
        """Return the moments of these rows."""
        return Moments.of(self.X, self.label, self.weight)

    def rows(self, chosen: IndexArray) -> Sample:
        """Return some of the rows."""
        return Sample(self.X[chosen], self.label[chosen], self.weight[chosen], self.number)

    def explained(self, moments: Moments, columns: Mask) -> float:
        """Return the share of the label that a regression on some columns explains."""
        return moments.explained_share(np.flatnonzero(columns), 1 if self.number else None)


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


def sure_followers(sample: Sample, moments: Moments, seed: int) -> SureFollowers:
    """Find the columns that surely follow the label, given the moments of the sample."""
    nothing = np.zeros(moments.num_columns, dtype=bool)
    candidates = find_candidates(sample, moments)
    explained = sample.explained(moments, ~nothing)
    if not candidates.likely.any() or explained > _EXACT:
        return SureFollowers(nothing, nothing, np.full(len(nothing), np.nan))
    survival = _survival(sample, seed)
    stable = candidates.likely & (survival >= _LEAST_SURVIVAL)
    all_clear = (candidates.clear | ~stable).all()
    collision = _COLLISION_BESIDE_CLEAR if all_clear else _COLLISION
    if (
        not stable.any()
        or not _others_collide(sample, moments, stable, collision)
        or sample.explained(moments, ~stable) < _LEAST_EXPLAINED * explained
    ):
        return SureFollowers(nothing, nothing, survival)
    return SureFollowers(stable, _isolated(moments, stable), survival)


def find_candidates(sample: Sample, moments: Moments) -> Candidates:
    """Find what looks like following the label in one sample of the rows."""
    evidence = Evidence(moments)
    first = evidence.given([])
    quantity = _quantities(sample.X)
    tied = first.correlated & evidence.relevant & quantity
    judged = tied & (first.m >= _LEAST_M)
    eligible = judged & (first.k < RATIO_THRESHOLD * first.m)
    taken = _take_followers(evidence, first, eligible)
    followers = taken.mask
    clear = np.zeros_like(followers)
    if sample.number:
        clear = _clear(sample.X, evidence.moments, first, tied)
    others = judged & (taken.share > SHARE_THRESHOLD) & ~followers
    alone = followers.any() and not others.any()
    if alone and _others_collide(sample, moments, followers, _COLLISION):
        return Candidates(followers, clear)
    well_judged = clear & (first.m >= _LEAST_M)
    if well_judged.any() and _others_collide(sample, moments, well_judged, _COLLISION_BESIDE_CLEAR):
        return Candidates(well_judged, clear)
    return Candidates(np.zeros_like(followers), clear)


def _quantities(X: FloatArray) -> Mask:
    """Return the columns of more than two values: an indicator cannot lie close to a label."""
    at_an_end = (X.min(axis=0) == X) | (X.max(axis=0) == X)
    return np.asarray(~at_an_end.all(axis=0))


class _Taken(NamedTuple):
    """Followers of the label, and each column's share when it was last looked at."""

    mask: Mask
    share: FloatArray


def _take_followers(evidence: Evidence, first: ColumnShares, eligible: Mask) -> _Taken:
    """Take the clearest follower of the label, look again given what was taken, until none is left.

    Looking again is what separates the rest: a cause may resemble the label merely because it
    resembles a follower, and once that is accounted for it no longer does.
    """
    followers = np.zeros(len(eligible), dtype=bool)
    share = first.share.copy()
    order: list[int] = []
    while True:
        candidates = np.flatnonzero(eligible & ~followers & (share > SHARE_THRESHOLD))
        if not len(candidates) or (~followers).sum() == 1:
            return _Taken(followers, share)
        clearest = int(candidates[np.argmax(share[candidates])])
        followers[clearest] = True
        order.append(clearest)
        now = evidence.given(order)
        share[~followers] = now.share[~followers]


def _clear(X: FloatArray, moments: Moments, first: ColumnShares, tied: Mask) -> Mask:
    """Return the columns that given the label have nothing to do with the others, though these
    predict the label: else there would be nothing for a cause to collide with.
    """
    clear = tied & (first.m >= _CLEAR_M)
    clear &= first.k < _CLEAR_RATIO * first.m
    clear &= first.share > _CLEAR_SHARE
    clear &= moments.residual_variance(moments.label) <= 1.0 - _CLEAR_LABEL
    for j in np.flatnonzero(clear):
        clear[j] = len(np.unique(X[:, j])) >= _CLEAR_VALUES
    if (~clear).sum() < _LEAST_LEFT or not adds_to_label(moments, np.flatnonzero(clear)):
        return np.zeros_like(clear)
    return np.asarray(clear)


def _others_collide(sample: Sample, moments: Moments, followers: Mask, collision: float) -> bool:
    """Return whether enough columns would be left, and these behave like causes of the label."""
    kept = np.flatnonzero(~followers)
    if len(kept) < _LEAST_LEFT:
        return False
    evidence = Evidence(moments.subset(kept))
    causes = evidence.relevant
    if (causes & _quantities(sample.X[:, kept])).sum() < 2:
        return False
    rest = evidence.given([])
    return bool(rest.k[causes].sum() > collision * rest.m[causes].sum())


def _isolated(moments: Moments, followers: Mask) -> Mask:
    """Return the columns that nothing goes with given the label, and that add nothing to the rest.

    Each is tested at the level of a single test, not of all columns together: a column must not go
    because it failed a stricter one.
    """
    kept = np.flatnonzero(~followers)
    evidence = Evidence(moments.subset(kept))
    isolated = np.zeros(len(followers), dtype=bool)
    isolated[kept] = (evidence.relevance > ALPHA) & ~evidence.given([]).collides
    return isolated


def _survival(sample: Sample, seed: int) -> FloatArray:
    """Return the share of the halves of the rows in which each column likely follows the label."""
    counts = np.zeros(sample.X.shape[1])
    for rows in halves(len(sample.X), seed):
        half = sample.rows(rows)
        moments = half.moments()
        if moments.rows >= 2 * len(moments.mean) + 10:
            counts += find_candidates(half, moments).likely
    return counts / _HALVES


def halves(n: int, seed: int) -> Iterator[NDArray[np.intp]]:
    """Yield the rows of each half, in complementary pairs."""
    rng = np.random.default_rng(seed)
    size = min(n // 2, _MOST_ROWS_OF_A_HALF)
    for _ in range(_HALVES // 2):
        order = rng.permutation(n)
        yield np.sort(order[:size])
        yield np.sort(order[-size:])
