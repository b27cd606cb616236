"""Second moments of the columns and functions of the label, and what the regressions among them
say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import block_diag, qr
from scipy.linalg.lapack import dpstrf
from scipy.special import fdtrc

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]
Mask = NDArray[np.bool_]

# Level of the significance tests of all columns together.
ALPHA = 0.01
_ROWS_AT_A_TIME = 65_536
_COLLINEAR = 1e-8
# What the columns before it leave of a column that is clearly independent, as a deviation.
_CLEARLY = 1e-3
# Added to the variance of every scaled column: where y is an exact linear function of the columns,
# they are collinear once y is known, and without it their conditional covariance could not be
# inverted.
_RIDGE = 1e-10
_RANK_TOLERANCE = 1e-4
_TINY = 1e-12


@dataclass(frozen=True)
class Moments:
    """Covariance of [columns scaled to variance 1, label functions].

    Attributes:
        joint: covariance matrix (maximum likelihood: divided by the sum of weights) of shape (p +
            d, p + d).
        mean: means of [columns, label functions].
        scale: standard deviations of the columns.
        rows: rows it was computed from; with weights, Kish's effective number of rows.
    """

    joint: FloatArray
    mean: FloatArray
    scale: FloatArray
    rows: float

    @classmethod
    def of(cls, X: FloatArray, label: FloatArray, weight: FloatArray) -> Moments:
        """Compute them in chunks of rows, so that no centred copy of a large table is made."""
        p = X.shape[1]
        total = weight.sum()
        mean = np.concatenate([weight @ X, weight @ label]) / total
        joint = np.zeros((len(mean), len(mean)))
        for start in range(0, len(X), _ROWS_AT_A_TIME):
            rows = slice(start, start + _ROWS_AT_A_TIME)
            chunk = np.hstack([X[rows], label[rows]]) - mean
            joint += chunk.T @ (chunk * weight[rows, None])
        joint /= total
        spread = np.sqrt(np.diag(joint)[:p])
        scale = np.where(spread > 0, spread, 1.0)
        units = np.concatenate([scale, np.ones(label.shape[1])])
        return cls(joint / np.outer(units, units), mean, scale, effective_rows(weight))

    @property
    def num_columns(self) -> int:
        """How many columns there are, p."""
        return len(self.scale)

    @property
    def label(self) -> IndexArray:
        """Where the label functions stand in ``joint``."""
        return np.arange(self.num_columns, len(self.mean))

    @property
    def with_label(self) -> FloatArray:
        """The covariance of each column with each function of the label, shape (p, d)."""
        return self.joint[: self.num_columns, self.num_columns :]

    @property
    def varies(self) -> Mask:
        """Mask of the columns that are not constant: they have variance 1."""
        variance = np.diag(self.joint)[: self.num_columns]
        return np.asarray(variance > 0.5)

    def subset(self, columns: IndexArray) -> Moments:
        """Return the moments of some of the columns and the label."""
        both = np.concatenate([columns, self.label])
        return Moments(
            self.joint[np.ix_(both, both)], self.mean[both], self.scale[columns], self.rows
        )

    def given_column(self, column: int) -> Moments:
        """Return the moments of what one column leaves of the other columns and of the label."""
        others = np.delete(np.arange(len(self.mean)), column)
        told = self.joint[others, column]
        left = self.joint[np.ix_(others, others)] - np.outer(told, told)
        scale = np.delete(self.scale, column)
        return Moments(left, self.mean[others], scale, self.rows - 1.0).in_units()

    def in_units(self) -> Moments:
        """Return them with columns of variance 1 and orthonormal functions of the label."""
        p = self.num_columns
        spread = np.sqrt(np.maximum(np.diag(self.joint)[:p], _RIDGE))
        root = np.linalg.cholesky(self.joint[p:, p:] + _RIDGE * np.eye(len(self.label)))
        units = block_diag(np.diag(1.0 / spread), np.linalg.inv(root))
        joint = units @ self.joint @ units.T
        return replace(self, joint=joint, scale=self.scale * spread)

    def unbias(self, inputs: int) -> float:
        """Return the factor that makes a residual variance after a regression on this many inputs
        unbiased.
        """
        return self.rows / max(self.rows - inputs - 1, 1.0)

    def covariance(self, columns: IndexArray) -> FloatArray:
        """Return the covariance of some columns."""
        return np.asarray(self.joint[np.ix_(columns, columns)] + _RIDGE * np.eye(len(columns)))

    def given_label(self) -> FloatArray:
        """Return the covariance of what a regression on the label leaves of the columns."""
        among = self.covariance(np.arange(self.num_columns))
        return np.asarray(among - self.with_label @ self.with_label.T)

    def unexplained_by_label(self) -> FloatArray:
        """Return the share of each column that a regression on the label leaves unexplained."""
        left = np.maximum(np.diag(self.given_label()), _TINY)
        return np.asarray(left * self.unbias(len(self.label)))

    def explained_share(self, columns: IndexArray, goal: int | None) -> float:
        """Return the share of the first ``goal`` label functions, or of all, that a regression on
        some columns explains.
        """
        return float(self.explained_shares(columns)[:goal].mean())

    def explained_shares(self, columns: IndexArray) -> FloatArray:
        """Return the adjusted share of each label function that a regression explains."""
        with_label = self.with_label[columns]
        slopes = np.linalg.solve(self.covariance(columns), with_label)
        explained = (with_label * slopes).sum(axis=0)
        share = np.clip(explained / np.diag(self.joint)[self.label], 0.0, 1.0)
        return np.asarray(1.0 - (1.0 - share) * self.unbias(len(columns)))


def adds_to_label(moments: Moments, known: IndexArray) -> bool:
    """Test by F whether all columns explain more of the label than the known ones do.

    Of several functions of the label the smallest p-value counts, multiplied by their number.
    """
    p = moments.num_columns
    added = p - len(known)
    if not added:
        return False
    alone = 1.0 - moments.explained_shares(known)
    both = 1.0 - moments.explained_shares(np.arange(p))
    p_values = f_test(alone, both, added, moments.rows - 1 - p)
    return bool(len(p_values) * np.min(p_values) < ALPHA)


def f_test(smaller: Any, larger: Any, added_inputs: int, freedom: float) -> Any:
    """Return the p-value, by F, of "a larger model explains no more"; both as unbiased residual
    variances.
    """
    gain = np.maximum(smaller * (freedom + added_inputs) - larger * freedom, 0.0)
    noise = np.maximum(larger, np.finfo(float).tiny)
    return fdtrc(added_inputs, freedom, gain / added_inputs / noise)


def effective_rows(weight: FloatArray) -> float:
    """Return Kish's effective sample size, (Σw)² / Σw²: as many rows of equal weight would be worth
    as much.
    """
    scaled = weight / weight.max()
    return float(scaled.sum() ** 2 / (scaled**2).sum())


def standardised(X: FloatArray) -> FloatArray:
    """Return columns of mean 0 and variance 1; a constant one is 0."""
    spread = X.std(axis=0)
    return np.asarray((X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def inverse(covariance: FloatArray) -> FloatArray:
    """Return the inverse, also of a covariance that rounding has made barely singular."""
    ridge = 0.0
    while True:
        try:
            inverted = np.linalg.inv(covariance + ridge * np.eye(len(covariance)))
        except np.linalg.LinAlgError:
            inverted = np.full_like(covariance, np.nan)
        diagonal = np.diag(inverted)
        if np.isfinite(diagonal).all() and (diagonal > 0).all():
            return np.asarray(inverted)
        ridge = max(10.0 * ridge, _RIDGE)


class Independent(NamedTuple):
    """The linearly independent ones among columns.

    Attributes:
        columns: Their indices, in order; constant columns are not among them.
        combination: Shape (independent, p): writes every centred column as a combination of them.
    """

    columns: IndexArray
    combination: FloatArray


def independent_columns(moments: Moments, aside: Mask) -> Independent:
    """Split the columns that are not aside into linearly independent ones and those that follow
    from them.
    """
    p = moments.num_columns
    varies = varying(moments, aside)
    correlation = np.where(np.outer(varies, varies), moments.joint[:p, :p], 0.0)
    if varies.all() and _is_well_conditioned(correlation):
        return Independent(np.arange(p), np.eye(p))
    triangle, order = qr(correlation, pivoting=True, mode="r")
    rank = int((np.abs(np.diag(triangle)) > _COLLINEAR).sum())
    independent: IndexArray = np.sort(order[:rank]).astype(np.intp)
    among = correlation[np.ix_(independent, independent)]
    return Independent(independent, np.linalg.solve(among, correlation[independent]))


def has_more_independent_columns(moments: Moments, aside: Mask, than: int) -> bool:
    """Return whether more columns than so many are clearly independent.

    For a table of more columns than rows this takes a small part of the time of
    :func:`independent_columns`.
    """
    columns = np.flatnonzero(varying(moments, aside))
    if len(columns) <= than:
        return False
    _, _, rank, _ = dpstrf(moments.joint[np.ix_(columns, columns)], tol=_CLEARLY**2)
    return bool(rank > than)


def varying(moments: Moments, aside: Mask) -> Mask:
    """Return the mask of the columns that are not aside and vary beyond rounding error."""
    rounding = 1e-3 * np.sqrt(np.finfo(float).eps)
    beyond_rounding = moments.scale > rounding * np.abs(moments.mean[: moments.num_columns])
    return np.asarray(moments.varies & ~aside & beyond_rounding)


def _is_well_conditioned(correlation: FloatArray) -> bool:
    """Return whether columns are clearly independent: a fast answer for wide tables."""
    try:
        triangle = np.linalg.cholesky(correlation)
    except np.linalg.LinAlgError:
        return False
    return bool(np.diag(triangle).min() > _CLEARLY)


def label_functions(y: NDArray[Any], number: bool, weight: FloatArray) -> FloatArray:
    """Return functions that say nearly all of a label, orthonormal over rows of these weights; a
    constant one has none.
    """
    functions = number_functions(y) if number else class_functions(y)
    return _orthonormal(functions, weight)


def number_functions(y: ArrayLike) -> FloatArray:
    """Return a number, scaled to a range of 1, and its hinges at the quartiles.

    Piecewise linear rather than powers of y, because one outlying label would rule a cubic.
    """
    numbers: FloatArray = np.asarray(y, dtype=np.float64)
    low = numbers.min()
    spread = numbers.max() - low
    if spread == 0:
        return np.empty((len(numbers), 0))
    numbers = (numbers - low) / spread
    quartiles = np.quantile(numbers, [0.25, 0.5, 0.75])
    hinges = np.maximum(numbers[:, None] - quartiles, 0.0)
    return np.column_stack([numbers, hinges])


def class_functions(y: NDArray[Any]) -> FloatArray:
    """Return the indicator of each class but one."""
    classes, codes = np.unique(y, return_inverse=True)
    return np.eye(len(classes))[codes, 1:]


def _orthonormal(functions: FloatArray, weight: FloatArray) -> FloatArray:
    """Make functions centred, uncorrelated and of variance 1, one after the other; leave out those
    that add nothing.
    """
    total = weight.sum()
    made = np.empty((len(functions), 0))
    for function in functions.T:
        centred = function - np.average(function, weights=weight)
        rest = centred
        for _ in range(2):  # once more, against rounding
            rest = rest - made @ (made.T @ (weight * rest)) / total
        spread = _spread(rest, weight)
        if spread > _RANK_TOLERANCE * _spread(centred, weight):
            made = np.column_stack([made, rest / spread])
    return made


def _spread(values: FloatArray, weight: FloatArray) -> float:
    """Return the standard deviation over rows of these weights."""
    around = values - np.average(values, weights=weight)
    return float(np.sqrt(np.average(around**2, weights=weight)))
