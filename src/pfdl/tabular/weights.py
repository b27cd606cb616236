"""Learnt weights of rows, and what they leave of the sample."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

from pfdl.tabular.linear import LinearRegressorBase
from pfdl.tabular.moments import effective_rows

_LEAST_SHARE = 0.1


class EffectiveSampleSizeWarning(UserWarning):
    """A fit under learnt weights cannot be trusted: they rest on few rows, or it is worse than the mean of y."""


class WeightedLeastSquares(LinearRegressorBase):
    """What DWR and SRDO have in common: least squares under learnt weights, with a warning where these mislead it."""

    fit_intercept: bool

    def _fit_under(self, weight: NDArray[np.float64], X: NDArray[np.float64], y: NDArray[np.float64]) -> None:
        """Fit under the weights; warn if they are worth few rows, or the fit is worse than the mean of y."""
        self.sample_weight_ = weight / weight.mean()
        self.effective_sample_size_ = effective_rows(self.sample_weight_)
        linear = LinearRegression(fit_intercept=self.fit_intercept).fit(X, y, sample_weight=self.sample_weight_)
        self.coef_, self.intercept_ = linear.coef_, linear.intercept_
        name, rows = type(self).__name__.removesuffix("Regressor"), len(weight)
        worth = f"the weights of {name} are worth {self.effective_sample_size_:.0f} of {rows} rows"
        if self.effective_sample_size_ < _LEAST_SHARE * rows:
            worth += " (effective sample size below a tenth)"
        elif self.fit_intercept and (r2 := linear.score(X, y)) < 0 and np.ptp(y) > 0:
            worth += f", and over all rows the fit is worse than the mean of y (R² {r2:.2f})"
        else:
            return
        warnings.warn(
            f"{worth}, so its coefficients are unreliable. Standardise the columns, use fewer of them, or compare with "
            "least squares on held-out environments before you trust the fit.",
            EffectiveSampleSizeWarning,
            stacklevel=4,  # the caller of fit, which is wrapped
        )
