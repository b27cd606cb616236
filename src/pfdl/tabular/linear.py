"""What the linear regressors have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.linear_model._base import LinearModel
from sklearn.utils.validation import check_is_fitted

from pfdl.tabular.validation import check_rows


class LinearRegressorBase(RegressorMixin, LinearModel):  # type: ignore[misc]
    """Predict from ``coef_`` and ``intercept_``, with complaints that name the column."""

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predict y for the rows of X."""
        check_is_fitted(self)
        predicted: NDArray[np.float64] = check_rows(self, X) @ self.coef_ + self.intercept_
        return predicted
