"""PFDL on tables, as the paper describes it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.linear_model._base import LinearModel
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from pfdl._internal.fitting import all_or_nothing
from pfdl.tabular.moments import Moments
from pfdl.tabular.network import OPTIMIZERS, PaperTraining, correlated_part
from pfdl.tabular.validation import check_rows, check_table

FloatArray = NDArray[np.float64]


class PFDLRegressor(RegressorMixin, LinearModel):  # type: ignore[misc]
    """Linear regression with the output of the feature decomposition network as auxiliary features.

    This is the paper's experiment on tables: one shared network g learns to predict each column from the others, its
    output g(X) joins X as p further columns, and a least-squares fit on [X, g(X)] gives the coefficients. ``coef_`` are
    those of X, which the paper compares with the true ones. The paper gives the learning rate (0.001) and the most
    iterations (5,000). It leaves open: the sizes of g, the batches (Algorithm 1 traverses the data in mini-batches; the
    iterations of DWR, whose number it takes over, see all rows), which stochastic optimiser, whether the columns are
    standardised for g (here they are), and what of DWR's estimator beyond its least squares is meant by "same as DWR"
    (here: no weights, the closed form).

    A shared g does not know which column it predicts, so g(X) says little, and the coefficients stay close to those of
    least squares: the paper's figures are not reproduced by this reading (``docs/results/mmads.md``).

    Args:
        hidden: Widths of the hidden layers of g.
        learning_rate: Learning rate of g.
        max_iter: Iterations of g.
        batch_size: Rows per iteration; None for all of them.
        optimizer: ``"adam"``, ``"rmsprop"`` or ``"sgd"``.
        fit_intercept: Whether to fit an intercept.
        random_state: Seed of g and of its batches.

    Attributes:
        coef_: Coefficients of the columns of X, of shape (n_features,).
        auxiliary_coef_: Coefficients of g(X), of shape (n_features,); empty with one column, which has no others.
        intercept_: Intercept.
        decomposition_: The network g, or None with one column.
        loss_: Loss of g in its last iteration.
        n_iter_: Iterations of g.
        n_features_in_: Number of columns seen in ``fit``.
        feature_names_in_: Their names, if X had any.

    Examples:
        >>> from pfdl.data import make_mmads
        >>> from pfdl.tabular import PFDLRegressor
        >>> data = make_mmads(200, 10, 1.7, seed=0)
        >>> model = PFDLRegressor(max_iter=20, random_state=0).fit(data.X, data.y)
        >>> model.coef_.shape, model.auxiliary_coef_.shape
        ((10,), (10,))
    """

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] = (64,),
        learning_rate: float = 0.001,
        max_iter: int = 5000,
        batch_size: int | None = 128,
        optimizer: str = "adam",
        fit_intercept: bool = True,
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> PFDLRegressor:
        """Fit to columns X of shape (n, p) and a numeric label y of shape (n,)."""
        self._check_parameters()
        X, y = check_table(self, X, y, numeric_y=True)
        p = X.shape[1]
        features = X
        self.decomposition_ = None
        self.loss_, self.n_iter_ = float("nan"), self.max_iter
        if p > 1:
            self._moments = Moments.of(X, np.empty((len(X), 0)))
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            training = PaperTraining(
                tuple(self.hidden), self.learning_rate, self.max_iter, self.batch_size, self.optimizer, seed
            )
            self.decomposition_, self.loss_ = training.fit(X, self._moments)
            features = self._with_auxiliary(X)
        linear = LinearRegression(fit_intercept=self.fit_intercept).fit(features, y)
        self.coef_, self.auxiliary_coef_ = linear.coef_[:p], linear.coef_[p:]
        self.intercept_ = linear.intercept_
        return self

    def predict(self, X: Any) -> FloatArray:
        """Predict y for the rows of X."""
        check_is_fitted(self)
        features = self._with_auxiliary(check_rows(self, X))
        predicted: FloatArray = features @ np.append(self.coef_, self.auxiliary_coef_) + self.intercept_
        return predicted

    def _with_auxiliary(self, X: FloatArray) -> FloatArray:
        if self.decomposition_ is None:
            return X
        return np.hstack([X, correlated_part(self.decomposition_, X, self._moments)])

    def _check_parameters(self) -> None:
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate is {self.learning_rate}; it must be positive.")
        for name in ("max_iter", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1.")
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer is {self.optimizer!r}; choose {', '.join(map(repr, OPTIMIZERS))}.")
