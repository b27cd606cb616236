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
    FloatArray,
    Mask,
    Moments,
    class_functions,
    f_test,
    inverse,
    number_functions,
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
        explained: Share of the label that all columns explain.
        others: Per column, the share of the label that all other columns explain.
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
    explained: float
    others: FloatArray

    @property
    def ratio(self) -> FloatArray:
        """k/m: how much of what the others explain is left once the label is known."""
        return self.k / np.maximum(self.m, _TINY)


def measure(moments: Moments) -> Marks:
    """Measure the marks of linearly independent columns."""
    p, d, n = moments.num_columns, len(moments.label), moments.rows
    among = moments.covariance(np.arange(p))
    across = moments.joint[:p, p:]
    given_label = among - across @ across.T
    precision = inverse(among)
    rest = 1.0 / np.diag(precision)
    rest_given_label = 1.0 / np.diag(inverse(given_label))
    total_given_label = np.maximum(np.diag(given_label), _TINY)

    freedom = n - p - d
    m = 1.0 - rest * moments.unbias(p - 1)
    unexplained = rest_given_label * moments.unbias(p - 1 + d)
    unexplained_by_label = total_given_label * moments.unbias(d)
    slopes = precision @ across
    lost = slopes**2 / np.diag(precision)[:, None]
    explained = (across * slopes).sum(axis=0)
    direction = across / np.maximum(np.linalg.norm(across, axis=1, keepdims=True), _TINY)
    through, beyond = _through_prediction(among, across, precision, slopes, direction)
    return Marks(
        m=m,
        m_p=f_test(moments.unbias(0), rest * moments.unbias(p - 1), p - 1, n - p),
        k=1.0 - unexplained / unexplained_by_label,
        k_p=f_test(unexplained_by_label, unexplained, p - 1, freedom),
        k_error=float(np.sqrt(2.0 * max(p - 1, 1)) / n),
        label=1.0 - unexplained_by_label,
        share=np.clip(
            (1.0 - unexplained_by_label) / np.maximum(1.0 - unexplained, _TINY), 0.0, 1.0
        ),
        through=through,
        beyond=beyond,
        relevance=f_test(rest * moments.unbias(p - 1), unexplained, d, freedom),
        explained=float(1.0 - (1.0 - explained[0]) * moments.unbias(p)),
        others=((explained - lost) * direction**2).sum(axis=1),
    )


def _through_prediction(
    among: FloatArray,
    across: FloatArray,
    precision: FloatArray,
    slopes: FloatArray,
    direction: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the squared correlation of each column with the others' prediction of the label,
    without and with the label known.

    The label's functions are weighted as the column follows them. Column j of ``predictions`` holds
    the slopes of that regression without column j, by the formula for leaving one out.
    """
    own = (slopes * direction).sum(axis=1) / np.diag(precision)
    predictions = slopes @ direction.T - precision * own[None, :]
    np.fill_diagonal(predictions, 0.0)
    products = among @ predictions
    of_label = across.T @ predictions
    variance = (predictions * products).sum(axis=0)
    with_column = np.diag(products)
    variance_given = variance - (of_label**2).sum(axis=0)
    with_column_given = with_column - (across * of_label.T).sum(axis=1)
    left = np.maximum(1.0 - (across**2).sum(axis=1), _TINY)
    through = with_column**2 / np.maximum(variance, _TINY)
    beyond = with_column_given**2 / np.maximum(variance_given * left, _TINY)
    return through, beyond


def column_scores(X: FloatArray) -> FloatArray:
    """Return the normal scores of the ranks of every column; of two values, the values.

    Missing values get the middle score: a column that depends on the others through the label alone
    does so with such holes, too.
    """
    scores = np.empty_like(X, order="F")
    for j in range(X.shape[1]):
        scores[:, j] = _scores(X[:, j])
    return scores


def _scores(values: FloatArray) -> FloatArray:
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


def label_functions(y: NDArray[np.generic], number: bool) -> FloatArray:
    """Return functions of the label that say nearly all of it: hinges of its normal scores, or
    indicators of its classes.
    """
    if number:
        return number_functions(_scores(np.asarray(y, dtype=np.float64)))
    classes, codes = np.unique(y, return_inverse=True)
    return class_functions(codes, len(classes))


def copies(X: FloatArray, y: NDArray[np.generic], number: bool, least_rows: int) -> Mask:
    """Return the columns that are the label over again: in the same or the opposite order as a
    number, with gaps between the classes' values where one class has a value of its own.

    Rounded and binned copies are in the same order as well. A value must stand in ``least_rows``
    rows, or be one of as many, so that order cannot be chance.
    """
    found = np.zeros(X.shape[1], dtype=bool)
    codes = np.unique(y, return_inverse=True)[1]
    for j in range(X.shape[1]):
        column = X[:, j]
        known = ~np.isnan(column)
        if known.sum() < 2 * least_rows:
            continue
        is_copy = _same_order if number else _tells_class
        found[j] = is_copy(column[known], codes[known], least_rows)
    return found


def _same_order(column: FloatArray, codes: NDArray[np.intp], least_rows: int) -> bool:
    values, counts = np.unique(column, return_counts=True)
    rest = len(column) - counts.max()
    if len(values) < 2 or rest < least_rows or len(np.unique(codes)) < 3:
        return False
    order = np.lexsort((column, codes))
    if (np.diff(column[order]) >= 0).all():
        return True
    falling = np.lexsort((-column, codes))
    return bool((np.diff(column[falling]) <= 0).all())


def _tells_class(column: FloatArray, codes: NDArray[np.intp], least_rows: int) -> bool:
    """Return whether the values of a column name the class, but for one class that has many."""
    values, place = np.unique(column, return_inverse=True)
    if len(values) < 2:
        return False
    classes = codes.max() + 1
    several: set[int] = set()
    one_value: list[int] = []
    for code in range(classes):
        of_class = np.unique(place[codes == code])
        if len(of_class) == 1 and (codes == code).sum() >= least_rows:
            one_value.append(int(of_class[0]))
        elif len(of_class):
            several.add(code)
    if len(several) > 1 or not one_value:
        return False
    elsewhere = [set(place[codes == code].tolist()) for code in several]
    own = set(one_value)
    return len(own) == len(one_value) and all(own.isdisjoint(values) for values in elsewhere)


def pairs_that_make_label(moments: Moments, least: float) -> list[tuple[int, int]]:
    """Return the pairs of columns whose weighted sum explains the label to this share, though
    neither does alone.

    Args:
        moments: Of the values themselves, not of ranks: sums are lost by ranking.
        least: Share that the two must explain.
    """
    p = moments.num_columns
    if p < 3 or not len(moments.label):
        return []
    with_label = moments.joint[:p, p]
    among = moments.joint[:p, :p]
    alone = with_label**2
    free = 1.0 - among**2
    both = alone[:, None] + alone[None, :]
    both -= 2.0 * among * np.outer(with_label, with_label)
    explained = np.where(free > 1e-6, both / np.maximum(free, 1e-6), 0.0)
    new = np.maximum(alone[:, None], alone[None, :]) < 1.0 - 10.0 * (1.0 - least)
    first, second = np.nonzero(np.triu((explained > least) & new, k=1))
    return list(zip(first.tolist(), second.tolist(), strict=True))
