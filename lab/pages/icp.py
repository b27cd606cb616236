"""ICP: linear invariant causal prediction, the rival that uses known environments."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.linear_model import lars_path
from sklearn.utils.validation import check_consistent_length, column_or_1d

from pfdl.tabular.validation import all_or_nothing, check_table
from pfdl.tabular.weights import LinearRegressorBase, least_squares

FloatArray = NDArray[np.float64]

_LEAST_ROWS = 10


class ICPRegressor(LinearRegressorBase):
    """Least squares on the columns that every invariant model needs.

    Peters, Bühlmann and Meinshausen, "Causal inference by using invariant prediction", JRSS-B 2016, in its linear form
    with the fast test. A set of columns is *invariant* if the residuals of the pooled regression on it have the same
    mean (z-test) and the same variance (F-test) in every environment as in the others, at level
    ``alpha`` after Bonferroni. The columns that all invariant sets share are kept. If no set is invariant the model is
    rejected, and if they share nothing there is nothing to predict from: in both cases the mean is predicted.

    Args:
        alpha: Level of the test of a set.
        max_columns: All subsets are tested of the first so many columns that the Lasso takes in.

    Attributes:
        coef_: Coefficients, of shape (n_features,); 0 for columns left out.
        intercept_: Intercept.
        kept_: Mask of the columns that all invariant sets share.
        invariant_sets_: The invariant sets, as tuples of column numbers.
        rejected_: Whether there was none.
        n_features_in_: Number of columns seen in ``fit``.
        feature_names_in_: Their names, if X had any.
    """

    def __init__(self, *, alpha: float = 0.05, max_columns: int = 8) -> None:
        self.alpha = alpha
        self.max_columns = max_columns

    @all_or_nothing
    def fit(self, X: Any, y: Any, groups: Any) -> ICPRegressor:
        """Fit to columns X of shape (n, p), a numeric label y and the environment of each row."""
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha is {self.alpha}; it must lie strictly between 0 and 1.")
        X, y = check_table(self, X, y, numeric_y=True)
        groups = column_or_1d(np.asarray(groups))
        check_consistent_length(X, groups)
        names, membership = np.unique(groups, return_inverse=True)
        if len(names) < 2:
            raise ValueError(f"groups names one environment only, {names.tolist()[0]!r}; at least two are needed.")
        spread = X.std(axis=0)
        scaled = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        chosen = [int(j) for j in lars_path(scaled, y - y.mean(), max_iter=self.max_columns)[1][: self.max_columns]]
        self.invariant_sets_ = [
            columns
            for size in range(len(chosen) + 1)
            for columns in combinations(sorted(chosen), size)
            if _invariance(scaled[:, columns], y, membership) > self.alpha
        ]
        self.rejected_ = not self.invariant_sets_
        shared = set.intersection(*map(set, self.invariant_sets_)) if self.invariant_sets_ else set()
        self.kept_ = np.isin(np.arange(X.shape[1]), list(shared))
        self.coef_, self.intercept_ = np.zeros(X.shape[1]), float(y.mean())
        if self.kept_.any():
            self.coef_[self.kept_], self.intercept_ = least_squares(X[:, self.kept_], y)
        return self


def _invariance(X: FloatArray, y: FloatArray, membership: NDArray[np.intp]) -> float:
    """Return the p-value of "the residuals of y on X have one mean and one variance in all environments"."""
    rest = y - y.mean()
    if X.shape[1]:
        centred = X - X.mean(axis=0)
        rest = rest - centred @ np.linalg.lstsq(centred, rest, rcond=None)[0]
    counts = np.bincount(membership).astype(float)
    sums: FloatArray = np.bincount(membership, rest).astype(np.float64)
    squares: FloatArray = np.bincount(membership, rest**2).astype(np.float64)
    inside = _Part(counts, sums, squares)
    outside = _Part(counts.sum() - counts, sums.sum() - sums, squares.sum() - squares)
    large = (counts >= _LEAST_ROWS) & (outside.rows >= _LEAST_ROWS)
    error = np.sqrt(inside.variance / inside.rows + outside.variance / outside.rows)
    means = 2.0 * stats.norm.sf(np.abs(inside.mean - outside.mean) / np.maximum(error, np.finfo(float).tiny))
    ratio = inside.variance / np.maximum(outside.variance, np.finfo(float).tiny)
    below = stats.f.cdf(ratio, inside.rows - 1, outside.rows - 1)
    spreads = 2.0 * np.minimum(below, 1.0 - below)
    p_values = np.concatenate([means[large], spreads[large]])
    return min(1.0, float(p_values.min()) * len(p_values)) if len(p_values) else 1.0


class _Part:
    """Mean and variance of the residuals in parts of the table, from their sums."""

    def __init__(self, rows: FloatArray, sums: FloatArray, squares: FloatArray) -> None:
        self.rows = np.maximum(rows, 2.0)
        self.mean = sums / self.rows
        self.variance = np.maximum(squares / self.rows - self.mean**2, 0.0) * self.rows / (self.rows - 1.0)
