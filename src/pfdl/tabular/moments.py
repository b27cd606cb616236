"""Second moments of the columns and functions of the label, and what the regressions among them
say.

Four residual variances per column j say how much of it the others explain, with and without the
label y (F: the columns already dropped):

* v(F), v(F, y): what F alone, F and y, leave unexplained;
* v(rest), v(rest, y): what all other columns, without and with y, leave unexplained.

    m = 1 − v(rest)/v(F)                       how much of j the other columns explain
    k = 1 − v(rest, y)/v(F, y)                 the same, once y is known
    share = (v(F) − v(F, y)) / (v(F) − v(rest, y))   of all that can be explained of j, how much y
    explains alone
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import qr
from scipy.special import fdtrc

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]
Mask = NDArray[np.bool_]

# Level of the significance tests of all columns together.
ALPHA = 0.01
_ROWS_AT_A_TIME = 65_536
_COLLINEAR = 1e-8
# Added to the variance of every scaled column: where y is an exact linear function of the columns,
# they are collinear once y is known, and without it their conditional covariance could not be
# inverted.
_RIDGE = 1e-10
_RANK_TOLERANCE = 1e-4


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
        """Return the moments of the other columns and the label given one column, scaled again."""
        p = self.num_columns - 1
        others = np.delete(np.arange(len(self.mean)), column)
        told = self.joint[others, column]
        left = self.joint[np.ix_(others, others)] - np.outer(told, told)
        of_columns = left[:p, :p]
        of_label = left[p:, p:] + _RIDGE * np.eye(len(self.label))
        # Columns go back to variance 1, and the label's functions to being uncorrelated.
        spread = np.sqrt(np.maximum(np.diag(of_columns), _RIDGE))
        root = np.linalg.cholesky(of_label)
        across = np.linalg.solve(root, left[p:, :p])
        across /= spread
        joint = np.eye(len(others))
        joint[:p, :p] = of_columns / np.outer(spread, spread)
        joint[p:, :p] = across
        joint[:p, p:] = across.T
        scale = self.scale[others[:p]] * spread
        return Moments(joint, self.mean[others], scale, self.rows - 1.0)

    def unbias(self, inputs: int) -> float:
        """Return the factor that makes a residual variance after a regression on this many inputs
        unbiased.
        """
        return self.rows / max(self.rows - inputs - 1, 1.0)

    def covariance(self, columns: IndexArray, given: IndexArray | None = None) -> FloatArray:
        """Return the covariance of some columns, or of what a regression on the ``given`` ones
        leaves of them.
        """
        block: FloatArray = self.joint[np.ix_(columns, columns)] + _RIDGE * np.eye(len(columns))
        if given is None or not len(given):
            return block
        across = self.joint[np.ix_(given, columns)]
        among = self.joint[np.ix_(given, given)] + _RIDGE * np.eye(len(given))
        return np.asarray(block - across.T @ np.linalg.solve(among, across))

    def explained_share(self, columns: IndexArray, goal: int | None) -> float:
        """Return the share of the first ``goal`` label functions, or of all, that a regression on
        some columns explains.
        """
        return float(self.explained_shares(columns)[:goal].mean())

    def explained_shares(self, columns: IndexArray) -> FloatArray:
        """Return the adjusted share of each label function that a regression explains."""
        across = self.joint[np.ix_(columns, self.label)]
        explained = (across * np.linalg.solve(self.covariance(columns), across)).sum(axis=0)
        share = np.clip(explained / np.diag(self.joint)[self.label], 0.0, 1.0)
        return np.asarray(1.0 - (1.0 - share) * self.unbias(len(columns)))

    def residual_variance(self, given: IndexArray) -> FloatArray:
        """Return the unbiased variance that a regression on the ``given`` leaves of every
        column.
        """
        columns = np.arange(self.num_columns)
        variance = np.diag(self.covariance(columns, given=given)) * self.unbias(len(given))
        return np.maximum(variance, _RIDGE)


@dataclass(frozen=True)
class ColumnShares:
    """m, k and share of every column, given the columns already dropped, and the tests of m > 0 and
    k > 0.
    """

    m: FloatArray
    k: FloatArray
    share: FloatArray
    correlated: Mask
    collides: Mask


class Evidence:
    """What the least squares of each column on the others say about it, for all at once from an
    inverse covariance.

    Attributes:
        relevance: p-value, per column, of "given all other columns, this one and the label have
            nothing in common".
        relevant: Mask of the columns for which that is rejected.
    """

    def __init__(self, moments: Moments) -> None:
        columns = np.arange(moments.num_columns)
        functions = len(moments.label)
        self.moments = moments
        self.level = ALPHA / len(columns)
        self._others = len(columns) - 1
        self._freedom = moments.rows - 1 - self._others
        alone = np.diag(inverse(moments.covariance(columns)))
        known = np.diag(inverse(moments.covariance(columns, given=moments.label)))
        self._rest = moments.unbias(self._others) / alone
        self._rest_with_label = moments.unbias(self._others + functions) / known
        self.relevance = f_test(
            self._rest, self._rest_with_label, functions, self._freedom - functions
        )
        self.relevant = self.relevance < self.level

    def given(self, dropped: list[int]) -> ColumnShares:
        """Measure m, k and share of every column, given the columns already dropped."""
        label = self.moments.label
        f = np.array(dropped, dtype=np.intp)
        v_f = self.moments.residual_variance(f)
        v_fy = self.moments.residual_variance(np.concatenate([f, label]))
        v_rest = self._rest
        v_rest_y = self._rest_with_label
        explained = np.maximum(v_f - v_rest_y, np.finfo(float).tiny)
        added = max(self._others - len(dropped), 1)
        m_p = f_test(v_f, v_rest, added, self._freedom)
        k_p = f_test(v_fy, v_rest_y, added, self._freedom - len(label))
        return ColumnShares(
            m=1.0 - v_rest / v_f,
            k=1.0 - v_rest_y / v_fy,
            share=np.clip((v_f - v_fy) / explained, 0.0, 1.0),
            correlated=m_p < self.level,
            collides=k_p < self.level,
        )


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
            found = np.linalg.inv(covariance + ridge * np.eye(len(covariance)))
        except np.linalg.LinAlgError:
            found = np.full_like(covariance, np.nan)
        diagonal = np.diag(found)
        if np.isfinite(diagonal).all() and (diagonal > 0).all():
            return np.asarray(found)
        ridge = max(10.0 * ridge, _RIDGE)


def independent_columns(moments: Moments, aside: Mask) -> tuple[IndexArray, FloatArray]:
    """Split the columns that are not aside into linearly independent ones and those that follow
    from them.

    Returns:
        The indices of the independent columns (constant ones are not among them), in order, and a
        matrix of shape (independent, p) that writes every centred column as a combination of them.
    """
    p = moments.num_columns
    # A column whose spread is rounding error next to its size is constant.
    rounding = 1e-3 * np.sqrt(np.finfo(float).eps)
    varies = moments.varies & ~aside
    varies &= moments.scale > rounding * np.abs(moments.mean[:p])
    correlation = np.where(np.outer(varies, varies), moments.joint[:p, :p], 0.0)
    if varies.all() and _is_well_conditioned(correlation):
        return np.arange(p), np.eye(p)
    _, triangle, order = qr(correlation, pivoting=True)
    rank = int((np.abs(np.diag(triangle)) > _COLLINEAR).sum())
    independent: IndexArray = np.sort(order[:rank]).astype(np.intp)
    among = correlation[np.ix_(independent, independent)]
    return independent, np.linalg.solve(among, correlation[independent])


def _is_well_conditioned(correlation: FloatArray) -> bool:
    """Return whether columns are clearly independent: a fast answer for wide tables."""
    try:
        triangle = np.linalg.cholesky(correlation)
    except np.linalg.LinAlgError:
        return False
    return bool(np.diag(triangle).min() > 1e-3)


def label_functions(y: NDArray[Any], number: bool) -> FloatArray:
    """Return orthonormal functions that say nearly all of a label; a constant one has none."""
    return number_functions(y) if number else class_functions(y)


def number_functions(y: ArrayLike) -> FloatArray:
    """Return a number and its hinges at the quartiles, orthonormal; the first is y itself.

    Piecewise linear rather than powers of y, because one outlying label would rule a cubic.
    """
    numbers: FloatArray = np.asarray(y, dtype=np.float64)
    low = numbers.min()
    spread = numbers.max() - low
    if spread == 0:
        return np.empty((len(numbers), 0))
    numbers = (numbers - low) / spread
    quartiles = np.quantile(numbers, [0.25, 0.5, 0.75])
    hinges = [np.maximum(numbers - quartile, 0.0) for quartile in quartiles]
    return _orthonormal(np.column_stack([numbers, *hinges]))


def class_functions(y: NDArray[Any]) -> FloatArray:
    """Return the indicator of each class but one, orthonormal."""
    classes, codes = np.unique(y, return_inverse=True)
    indicators = np.eye(len(classes))[codes]
    return _orthonormal(indicators[:, 1:])


def _orthonormal(functions: FloatArray) -> FloatArray:
    """Make functions centred, uncorrelated and of variance 1, one after the other; leave out those
    that add nothing.
    """
    found = np.empty((len(functions), 0))
    for function in functions.T:
        rest = centred = function - function.mean()
        for _ in range(2):  # once more, against rounding
            rest = rest - found @ (found.T @ rest) / len(rest)
        if rest.std() > _RANK_TOLERANCE * centred.std():
            found = np.column_stack([found, rest / rest.std()])
    return found
