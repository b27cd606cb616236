"""The marks that an effect of the label leaves on a table, measured on ranks.

An effect of the label y depends on the other columns through y alone: given y nothing of them is
left in it. A cause of y is not like that: given y it goes with the other causes, for knowing
y and one of them tells of the other. Ranks make this hold for monotone copies and heavy tails, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import rankdata

from pfdl.tabular.moments import (
    ALPHA,
    FloatArray,
    Mask,
    Moments,
    f_test,
    inverse,
)

_TINY = 1e-12


@dataclass(frozen=True)
class Marks:
    """What the regressions among columns and label say: one entry per column in every array.

    Attributes:
        m: Share of the column that the other columns explain.
        m_p: p-value of "they explain nothing of it".
        k: Share of what the label leaves of the column that the other columns explain.
        k_p: p-value of "they explain nothing of that".
        k_error: Standard error of k where it is 0.
        label: Share of the column that the label explains.
        share: Of all that can be explained of the column, how much the label explains alone.
        through: Squared correlation of the column with what the other columns predict of the label.
        beyond: The same, given the label: what an effect lacks.
        relevance: p-value of "given all other columns, this one and the label have nothing in
            common".
    """

    m: FloatArray
    m_p: FloatArray
    k: FloatArray
    k_p: FloatArray
    k_error: float
    label: FloatArray
    share: FloatArray
    through: FloatArray
    beyond: FloatArray
    relevance: FloatArray

    @property
    def ratio(self) -> FloatArray:
        """k/m: how much of what the others explain is left once the label is known."""
        return self.k / np.maximum(self.m, _TINY)

    def are_certain(self, p_values: FloatArray) -> Mask:
        """Return which of the columns' p-values are below the level of all tests together."""
        return p_values < ALPHA / len(self.m)


def measure(moments: Moments) -> Marks:
    """Measure the marks of linearly independent columns."""
    p = moments.num_columns
    d = len(moments.label)
    others = p - 1
    freedom = moments.rows - p
    among = moments.covariance(np.arange(p))
    precision = inverse(among)
    precision_given_label = inverse(moments.given_label())
    # What the other columns, the label, and both leave of each column, unbiased
    beside_others = 1.0 / np.diag(precision) * moments.unbias(others)
    beside_label = moments.unexplained_by_label()
    beside_both = 1.0 / np.diag(precision_given_label) * moments.unbias(others + d)
    label = 1.0 - beside_label
    prediction = _predict_label(among, moments.with_label, precision)
    return Marks(
        m=1.0 - beside_others,
        m_p=f_test(moments.unbias(0), beside_others, others, freedom),
        k=1.0 - beside_both / beside_label,
        k_p=f_test(beside_label, beside_both, others, freedom - d),
        k_error=float(np.sqrt(2.0 * max(others, 1)) / moments.rows),
        label=label,
        share=np.clip(label / np.maximum(1.0 - beside_both, _TINY), 0.0, 1.0),
        through=prediction.correlation_with_column(),
        beyond=prediction.correlation_given_label(),
        relevance=f_test(beside_others, beside_both, d, freedom - d),
    )


@dataclass(frozen=True)
class _Prediction:
    """What the other columns predict of the label, for each column.

    Attributes:
        variance: Variance of the prediction.
        with_column: Its covariance with the column.
        with_label: Its covariance with each function of the label.
        column_with_label: The covariance of the column itself with these.
    """

    variance: FloatArray
    with_column: FloatArray
    with_label: FloatArray
    column_with_label: FloatArray

    def correlation_with_column(self) -> FloatArray:
        """Return the squared correlation of each column with the prediction."""
        return np.asarray(self.with_column**2 / np.maximum(self.variance, _TINY))

    def correlation_given_label(self) -> FloatArray:
        """Return the same of what the label leaves of both."""
        shared = (self.column_with_label * self.with_label).sum(axis=1)
        covariance = self.with_column - shared
        of_prediction = self.variance - (self.with_label**2).sum(axis=1)
        of_column = np.maximum(1.0 - (self.column_with_label**2).sum(axis=1), _TINY)
        return np.asarray(covariance**2 / np.maximum(of_prediction * of_column, _TINY))


def _predict_label(among: FloatArray, across: FloatArray, precision: FloatArray) -> _Prediction:
    """Predict the label from all columns but one, for each column.

    The label's functions are weighted as the column follows them. Column j of ``slopes`` holds the
    regression without column j, by the formula for leaving one out.
    """
    length = np.linalg.norm(across, axis=1, keepdims=True)
    direction = across / np.maximum(length, _TINY)
    with_all = precision @ across
    own = (with_all * direction).sum(axis=1) / np.diag(precision)
    slopes = with_all @ direction.T - precision * own[None, :]
    np.fill_diagonal(slopes, 0.0)
    products = among @ slopes
    return _Prediction(
        variance=(slopes * products).sum(axis=0),
        with_column=np.diag(products),
        with_label=(across.T @ slopes).T,
        column_with_label=across,
    )


def column_scores(X: FloatArray) -> FloatArray:
    """Return the normal scores of the ranks of every column; of two values, the values.

    Missing values get the middle score: a column that depends on the others through the label alone
    does so with such holes, too.
    """
    scores = np.empty_like(X, order="F")
    for j in range(X.shape[1]):
        scores[:, j] = normal_scores(X[:, j])
    return scores


def normal_scores(values: FloatArray) -> FloatArray:
    """Return the normal scores of the ranks of one column."""
    known = ~np.isnan(values)
    scores = np.zeros(len(values))
    present = values[known]
    if not len(present) or present.min() == present.max():
        return scores
    two_valued = ((present == present.min()) | (present == present.max())).all()
    if two_valued:
        scores[known] = present == present.max()
        scores[~known] = scores[known].mean()
    else:
        scores[known] = ndtri((rankdata(present) - 0.5) / len(present))
    return scores


def copies(X: FloatArray, y: NDArray[np.generic], number: bool, least_rows: int) -> Mask:
    """Return the columns that are the label over again: in the same or the opposite order as a
    number, with gaps between the classes' values where one class has a value of its own.

    Rounded and binned copies are in the same order as well. A value must stand in ``least_rows``
    rows, or be one of as many, so that order cannot be chance.
    """
    copied = np.zeros(X.shape[1], dtype=bool)
    is_copy = _same_order if number else _tells_class
    codes = np.unique(y, return_inverse=True)[1]
    for j, column in enumerate(X.T):
        known = ~np.isnan(column)
        if known.sum() >= 2 * least_rows:
            copied[j] = is_copy(column[known], codes[known], least_rows)
    return copied


def _same_order(column: FloatArray, codes: NDArray[np.intp], least_rows: int) -> bool:
    counts = np.unique(column, return_counts=True)[1]
    beside_commonest = len(column) - counts.max()
    if beside_commonest < least_rows or len(np.unique(codes)) < 3:
        return False
    order = np.lexsort((column, codes))
    if (np.diff(column[order]) >= 0).all():
        return True
    falling = np.lexsort((-column, codes))
    return bool((np.diff(column[falling]) <= 0).all())


def _tells_class(column: FloatArray, codes: NDArray[np.intp], least_rows: int) -> bool:
    """Return whether the values of a column name the class, but for one class that has many."""
    of_classes = [column[codes == code] for code in np.unique(codes)]
    values = [len(np.unique(of_class)) for of_class in of_classes]
    distinct = len(np.unique(column))
    if distinct < 2 or sum(values) > distinct:
        return False
    have_own_value = [
        number == 1 and len(of_class) >= least_rows
        for number, of_class in zip(values, of_classes, strict=True)
    ]
    return any(have_own_value) and have_own_value.count(False) <= 1


def pairs_that_make_label(moments: Moments, least: float) -> list[tuple[int, int]]:
    """Return the pairs of columns whose weighted sum explains the label to this share, though
    neither does alone.

    Args:
        moments: Of the values themselves, not of ranks: sums are lost by ranking.
        least: Share that the two must explain.
    """
    p = moments.num_columns
    if p < 3:
        return []
    with_label = moments.with_label[:, 0]
    among = moments.joint[:p, :p]
    alone = with_label**2
    # The squared multiple correlation of two inputs, by their correlations
    free = 1.0 - among**2
    both = np.add.outer(alone, alone)
    both -= 2.0 * among * np.outer(with_label, with_label)
    explained = np.where(free > 1e-6, both / np.maximum(free, 1e-6), 0.0)
    is_new = np.maximum.outer(alone, alone) < 1.0 - 10.0 * (1.0 - least)
    pairs = np.argwhere(np.triu((explained > least) & is_new, k=1))
    return [(first, second) for first, second in pairs.tolist()]
