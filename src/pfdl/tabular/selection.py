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

from pfdl.tabular.marks import Marks, measure
from pfdl.tabular.moments import (
    ALPHA,
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
    none = np.zeros(moments.num_columns, dtype=bool)
    candidates = find_candidates(sample, moments)
    explained = sample.explained(moments, ~none)
    if not candidates.likely.any() or explained > _EXACT:
        return SureFollowers(none, none, np.full(len(none), np.nan))
    survival = _survival(sample, seed)
    stable = candidates.likely & (survival >= _LEAST_SURVIVAL)
    all_clear = (candidates.clear | ~stable).all()
    collision = _COLLISION_BESIDE_CLEAR if all_clear else _COLLISION
    if not _others_collide(sample, moments, stable, collision):
        return SureFollowers(none, none, survival)
    if sample.explained(moments, ~stable) < _LEAST_EXPLAINED * explained:
        return SureFollowers(none, none, survival)
    return SureFollowers(stable, _isolated(moments, stable), survival)


def find_candidates(sample: Sample, moments: Moments) -> Candidates:
    """Find what looks like following the label in one sample of the rows."""
    marks = measure(moments)
    tied = marks.are_certain(marks.m_p) & marks.are_certain(marks.relevance)
    tied &= _quantities(sample.X)
    judged = tied & (marks.m >= _LEAST_M)
    clear = np.zeros_like(judged)
    if sample.number:
        clear = _clear(sample.X, moments, marks, tied)
    followers = _followers(moments, marks, judged)
    if _others_collide(sample, moments, followers, _COLLISION):
        return Candidates(followers, clear)
    if _others_collide(sample, moments, judged & clear, _COLLISION_BESIDE_CLEAR):
        return Candidates(judged & clear, clear)
    return Candidates(np.zeros_like(judged), clear)


def _quantities(X: FloatArray) -> Mask:
    """Return the columns of more than two values: an indicator cannot lie close to a label."""
    at_an_end = (X.min(axis=0) == X) | (X.max(axis=0) == X)
    return np.asarray(~at_an_end.all(axis=0))


def _followers(moments: Moments, marks: Marks, judged: Mask) -> Mask:
    """Take the clearest follower of the label, look again given what was taken, until none is left.

    Looking again is what separates the rest: a cause may resemble the label merely because it
    resembles a follower, and once that is accounted for it no longer does. Where a judged column
    still resembles the label and cannot be taken, there are no followers.
    """
    eligible = judged & (marks.k < RATIO_THRESHOLD * marks.m)
    left = np.arange(len(judged))
    while len(left) >= _LEAST_LEFT:
        resemble = judged[left] & (marks.share > SHARE_THRESHOLD)
        if not resemble.any():
            break
        candidates = np.flatnonzero(resemble & eligible[left])
        if not len(candidates):
            return np.zeros_like(judged)
        clearest = int(candidates[np.argmax(marks.share[candidates])])
        left = np.delete(left, clearest)
        moments = moments.given_column(clearest)
        marks = measure(moments)
    followers = np.ones_like(judged)
    followers[left] = False
    return followers


def _clear(X: FloatArray, moments: Moments, marks: Marks, tied: Mask) -> Mask:
    """Return the columns that given the label have nothing to do with the others, though these
    predict the label: else there would be nothing for a cause to collide with.
    """
    clear = tied & (marks.m >= _CLEAR_M)
    clear &= marks.k < _CLEAR_RATIO * marks.m
    clear &= marks.share > _CLEAR_SHARE
    clear &= marks.label >= _CLEAR_LABEL
    for j in np.flatnonzero(clear):
        clear[j] = len(np.unique(X[:, j])) >= _CLEAR_VALUES
    if (~clear).sum() < _LEAST_LEFT or not adds_to_label(moments, np.flatnonzero(clear)):
        return np.zeros_like(clear)
    return np.asarray(clear)


def _others_collide(sample: Sample, moments: Moments, followers: Mask, collision: float) -> bool:
    """Return whether, without some followers, enough columns would be left, and these behave like
    causes of the label.
    """
    kept = np.flatnonzero(~followers)
    if not followers.any() or len(kept) < _LEAST_LEFT:
        return False
    marks = measure(moments.subset(kept))
    causes = marks.are_certain(marks.relevance)
    if (causes & _quantities(sample.X[:, kept])).sum() < 2:
        return False
    return bool(marks.k[causes].sum() > collision * marks.m[causes].sum())


def _isolated(moments: Moments, followers: Mask) -> Mask:
    """Return the columns that nothing goes with given the label, and that add nothing to the rest.

    That they add nothing is tested at the level of a single test, not of all columns together: a
    column must not go because it failed a stricter one.
    """
    kept = np.flatnonzero(~followers)
    marks = measure(moments.subset(kept))
    isolated = np.zeros_like(followers)
    isolated[kept] = (marks.relevance > ALPHA) & ~marks.are_certain(marks.k_p)
    return isolated


def _survival(sample: Sample, seed: int) -> FloatArray:
    """Return the share of the halves of the rows in which each column likely follows the label."""
    counts = np.zeros(sample.X.shape[1])
    for rows in halves(len(sample.X), seed):
        half = sample.rows(rows)
        moments = half.moments().in_units()
        if moments.rows >= 2 * len(moments.mean) + 10:
            counts += find_candidates(half, moments).likely
    return counts / _HALVES


def halves(n: int, seed: int) -> Iterator[IndexArray]:
    """Yield the rows of each half, in complementary pairs."""
    rng = np.random.default_rng(seed)
    size = min(n // 2, _MOST_ROWS_OF_A_HALF)
    for _ in range(_HALVES // 2):
        order = rng.permutation(n)
        yield np.sort(order[:size])
        yield np.sort(order[-size:])
