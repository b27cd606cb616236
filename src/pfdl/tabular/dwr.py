"""DWR: Decorrelated Weighting Regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.linear_model._base import LinearModel
from sklearn.utils.validation import validate_data

FloatArray = NDArray[np.float64]

# The constants of the published code.
_BALANCE, _SUM, _SIZE = 2000.0, 0.0005, 0.00005
_RMSPROP_DECAY, _RMSPROP_EPSILON = 0.9, 1e-10


class DWRRegressor(RegressorMixin, LinearModel):  # type: ignore[misc]
    """Weighted least squares under sample weights that decorrelate all columns.

    Kuang et al., "Stable Prediction with Model Misspecification and Agnostic Distribution Shift", AAAI 2020. Stage one
    learns weights w = G∘G that minimise, with RMSProp on the whole table,

        (2000/p) Σ_j ‖ weighted covariance of column j with the others ‖₂ + 0.0005 (Σw − n)² + 0.00005 Σw²,

    stage two is weighted least squares in closed form. The published code repeats the table p + 1 times; here loss and
    gradient come from one weighted covariance matrix. It also keeps the checkpoint with the smallest error against the
    *true* coefficients, which nobody has outside a simulation; here the last one counts.

    Args:
        learning_rate: Learning rate of stage one.
        max_iter: Most steps of stage one.
        tol: Stage one stops when its loss changes by no more than this from one step to the next.
        fit_intercept: Whether to fit an intercept in stage two.

    Attributes:
        coef_: Coefficients, of shape (n_features,).
        intercept_: Intercept.
        sample_weight_: The learnt weights, with mean 1.
        effective_sample_size_: (Σw)² / Σw²: as many equally weighted rows would be worth as much.
        loss_: Value of the loss at the end.
        n_iter_: Steps taken.
        n_features_in_: Number of columns seen in ``fit``.
        feature_names_in_: Their names, if X had any.

    Examples:
        >>> from pfdl.data import make_mmads
        >>> from pfdl.tabular import DWRRegressor
        >>> data = make_mmads(500, 10, 1.7, seed=0)
        >>> model = DWRRegressor(max_iter=200).fit(data.X, data.y)
        >>> bool(0 < model.effective_sample_size_ < 500)
        True
    """

    def __init__(
        self, *, learning_rate: float = 0.005, max_iter: int = 5000, tol: float = 1e-8, fit_intercept: bool = True
    ) -> None:
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any) -> DWRRegressor:
        """Fit to columns X of shape (n, p) and a numeric label y of shape (n,)."""
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate is {self.learning_rate}; it must be positive.")
        if self.max_iter < 1:
            raise ValueError(f"max_iter is {self.max_iter}; it must be at least 1.")
        if not self.tol >= 0:
            raise ValueError(f"tol is {self.tol}; it must not be negative.")
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        weight = self._decorrelating_weights(X)
        self.sample_weight_ = weight / weight.mean()
        self.effective_sample_size_ = effective_sample_size(weight)
        linear = LinearRegression(fit_intercept=self.fit_intercept).fit(X, y, sample_weight=weight)
        self.coef_, self.intercept_ = linear.coef_, linear.intercept_
        return self

    def _decorrelating_weights(self, X: FloatArray) -> FloatArray:
        root = np.ones(len(X))
        mean_square = np.ones(len(X))  # as in TensorFlow 1, whose RMSProp the constants were tuned with
        previous = np.inf
        for step in range(1, self.max_iter + 1):
            loss, gradient = decorrelation_loss_and_gradient(X, root**2)
            gradient *= 2.0 * root
            mean_square += (1.0 - _RMSPROP_DECAY) * (gradient**2 - mean_square)
            root = root - self.learning_rate * gradient / np.sqrt(mean_square + _RMSPROP_EPSILON)
            self.loss_, self.n_iter_ = loss, step
            if abs(previous - loss) <= self.tol:
                break
            previous = loss
        weight: FloatArray = root**2
        return weight


def effective_sample_size(weight: FloatArray) -> float:
    """Kish's effective sample size, (Σw)² / Σw²."""
    return float(weight.sum() ** 2 / (weight**2).sum())


def decorrelation_loss_and_gradient(X: FloatArray, weight: FloatArray) -> tuple[float, FloatArray]:
    """DWR's loss at the given weights, and its gradient with respect to them, in O(n p²) time and O(n p) memory."""
    n, p = X.shape
    total = weight.sum() / n
    first = X.T @ weight / n
    covariance = (X * weight[:, None]).T @ X / n - np.outer(first, first) / total
    np.fill_diagonal(covariance, 0.0)
    norms = np.linalg.norm(covariance, axis=1)
    loss = _BALANCE / p * norms.sum() + _SUM * (total * n - n) ** 2 + _SIZE * (weight @ weight)

    direction = _BALANCE / p * covariance / np.maximum(norms, np.finfo(float).tiny)[:, None]
    both = direction + direction.T
    towards_mean = both @ first
    gradient = ((X @ direction) * X).sum(axis=1) - X @ towards_mean / total
    gradient = (gradient + first @ direction @ first / total**2) / n
    gradient += 2.0 * _SUM * (total * n - n) + 2.0 * _SIZE * weight
    return float(loss), gradient
