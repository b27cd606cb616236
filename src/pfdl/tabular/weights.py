"""Least squares whatever the units of the columns, and under learnt weights of the rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from pfdl._internal.collapse import describe_collapse
from pfdl.tabular.moments import FloatArray, effective_rows
from pfdl.tabular.validation import (
    Parameter,
    all_or_nothing,
    check_parameters,
    check_rows,
    check_table,
)

Fitted = TypeVar("Fitted", bound="LinearRegressorBase")


def least_squares(
    X: FloatArray, y: FloatArray, weight: FloatArray | None = None
) -> tuple[FloatArray, float]:
    """Return the coefficients and the intercept of (weighted) least squares.

    The columns are scaled first. scikit-learn's solver cuts singular values that are small next to
    the largest one: with one column in units 10⁷ times the others' it would predict the mean.
    """
    middle = np.average(X, axis=0, weights=weight)
    scale = np.sqrt(np.average((X - middle) ** 2, axis=0, weights=weight))
    # Of a column whose spread is rounding error next to its size, the size counts.
    scale = np.where(
        scale > 10 * np.finfo(float).eps * np.abs(middle), scale, np.maximum(np.abs(middle), 1.0)
    )
    linear = LinearRegression().fit(X / scale, y, sample_weight=weight)
    return linear.coef_ / scale, float(linear.intercept_)


class LinearRegressorBase(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predict from ``coef_`` and ``intercept_``, with complaints that name the column.

    A subclass has ``_learn(X, y)``, which fits it to a table that was checked, and ``_parameters``,
    what its parameters can be.
    """

    _parameters: ClassVar[Mapping[str, Parameter]] = MappingProxyType({})

    @all_or_nothing
    def fit(self: Fitted, X: Any, y: Any, **not_taken: Any) -> Fitted:
        """Fit to columns X of shape (n, p) and a numeric label y of shape (n,).

        Raises:
            TypeError: If it is given weights, or anything else.
        """
        if not_taken:
            raise TypeError(
                f"{type(self).__name__} takes no {' or '.join(not_taken)}: every row counts the"
                " same, or as the method weights it."
            )
        check_parameters(self, self._parameters)
        self._learn(*check_table(self, X, y, numeric_y=True))
        return self

    def predict(self, X: Any) -> FloatArray:
        """Predict y for the rows of X."""
        check_is_fitted(self)
        predicted: FloatArray = check_rows(self, X) @ self.coef_ + self.intercept_
        return predicted


class EffectiveSampleSizeWarning(UserWarning):
    """A fit under learnt weights cannot be trusted: they are near zero or on few rows, or the mean
    of y does better.
    """


class WeightedLeastSquares(LinearRegressorBase):
    """Least squares under learnt weights, with a warning where these mislead it."""

    def _fit_under(
        self, weight: FloatArray, X: FloatArray, y: FloatArray, mean: float = 1.0
    ) -> None:
        """Fit under the weights, whose mean should have been 1; warn if they or the fit are of no
        use.
        """
        self.sample_weight_ = weight / weight.mean()
        self.effective_sample_size_ = effective_rows(self.sample_weight_)
        self.coef_, self.intercept_ = least_squares(X, y, self.sample_weight_)
        name = type(self).__name__.removesuffix("Regressor")
        problem = self._problem(mean, X, y)
        if problem is None:
            return
        warnings.warn(
            f"the weights of {name} {problem}, so its coefficients are unreliable. Use fewer"
            " columns, or compare with least squares on held-out environments before you trust the"
            " fit.",
            EffectiveSampleSizeWarning,
            stacklevel=5,  # the caller of fit, which is wrapped
        )

    def _problem(self, mean: float, X: FloatArray, y: FloatArray) -> str | None:
        """Return why the weights are of no use, for a sentence; None if they are."""
        size = self.effective_sample_size_
        rows = len(y)
        if collapsed := describe_collapse(mean, size, rows, "rows"):
            return collapsed
        r2 = r2_score(y, X @ self.coef_ + self.intercept_)
        if r2 >= 0:
            return None
        return (
            f"are worth {size:.0f} of {rows} rows, and over all rows the fit is worse than the mean"
            f" of y (R² {r2:.2f})"
        )
