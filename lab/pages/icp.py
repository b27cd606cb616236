"""ICP: linear invariant causal prediction, the rival that uses known environments."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from sklearn.linear_model import lars_path

from pfdl.tabular.weights import LinearRegressorBase, least_squares

FloatArray = NDArray[np.float64]
LEVEL, MAX_COLUMNS, LEAST_ROWS = 0.05, 8, 10
"""Of the test of a set; all subsets are tested of the first so many columns that the Lasso takes
in; and smaller environments are not tested."""


class ICPRegressor(LinearRegressorBase):
    """Least squares on the columns that every invariant model needs.

    Peters, Bühlmann and Meinshausen, "Causal inference by using invariant prediction", JRSS-B 2016,
    in its linear form with the fast test. A set of columns is *invariant* if the residuals of the
    pooled regression on it have the same mean (z-test) and the same variance (F-test) in every
    environment as in the others, after Bonferroni. The columns that all invariant sets share are
    kept. If no set is invariant the model is rejected, and if they share nothing there is nothing
    to predict from: in both cases the mean is predicted.
    """

    def fit(self, X: Any, y: Any, groups: Any) -> ICPRegressor:
        """Fit to columns X of shape (n, p), a numeric label y and the environment of each row."""
        X, y, groups = np.asarray(X, dtype=float), np.asarray(y, dtype=float), np.asarray(groups)
        self.n_features_in_ = X.shape[1]
        spread = X.std(axis=0)
        scaled = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        chosen = [
            int(j) for j in lars_path(scaled, y - y.mean(), max_iter=MAX_COLUMNS)[1][:MAX_COLUMNS]
        ]
        self.invariant_sets_ = [
            columns
            for size in range(len(chosen) + 1)
            for columns in combinations(sorted(chosen), size)
            if _invariance(scaled[:, columns], y, groups) > LEVEL
        ]
        self.rejected_ = not self.invariant_sets_
        shared = (
            set.intersection(*map(set, self.invariant_sets_)) if self.invariant_sets_ else set()
        )
        self.kept_ = np.isin(np.arange(X.shape[1]), list(shared))
        self.coef_, self.intercept_ = np.zeros(X.shape[1]), float(y.mean())
        if self.kept_.any():
            self.coef_[self.kept_], self.intercept_ = least_squares(X[:, self.kept_], y)
        return self


def _invariance(X: FloatArray, y: FloatArray, groups: NDArray[Any]) -> float:
    """Return the p-value of "the residuals of y on X have one mean and one variance in all
    environments".
    """
    rest = y - y.mean()
    if X.shape[1]:
        rest = rest - X @ np.linalg.lstsq(X, rest, rcond=None)[0]
    p_values, least = [], np.finfo(float).tiny
    for rows in pd.Series(rest).groupby(groups).indices.values():
        inside, outside = rest[rows], np.delete(rest, rows)
        if min(len(inside), len(outside)) >= LEAST_ROWS:
            variances = inside.var(ddof=1), outside.var(ddof=1)
            error = np.sqrt(variances[0] / len(inside) + variances[1] / len(outside))
            below = stats.f.cdf(
                variances[0] / max(variances[1], least), len(inside) - 1, len(outside) - 1
            )
            p_values.append(
                2.0 * stats.norm.sf(abs(inside.mean() - outside.mean()) / max(error, least))
            )
            p_values.append(2.0 * min(below, 1.0 - below))
    return min(1.0, min(p_values) * len(p_values)) if p_values else 1.0
