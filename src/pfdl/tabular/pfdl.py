"""PFDL for tables: linear regression that does not lean on columns tied to y by the selection of the sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.linear_model._base import LinearModel
from sklearn.neural_network import MLPRegressor
from sklearn.utils.validation import check_is_fitted, validate_data

from pfdl.tabular.base import ScreeningMixin
from pfdl.tabular.label import number_functions
from pfdl.tabular.moments import Moments
from pfdl.tabular.network import correlated_part
from pfdl.tabular.selection import FOLLOWS_LABEL

FloatArray = NDArray[np.float64]


class PFDLRegressor(ScreeningMixin, RegressorMixin, LinearModel):  # type: ignore[misc]
    """Linear regression that holds up where the sample was selected with a bias.

    In the default mode the columns are decomposed twice, without and with the label, to find those that behave like
    effects of y: in a biased sample, columns that the selection ties to y. They get the coefficient 0 and ordinary
    least squares is fitted to the rest. If nothing betrays a selection, or causes and followers cannot be told apart,
    the result is exactly ordinary least squares. A genuine effect of y is dropped too: it predicts well only while the
    mechanism behind it holds. ``docs/tabular.md`` says when this works and when it does not.

    Args:
        mode: ``"selection"``, the above, an extension of this project; or ``"paper"``, what the PFDL paper describes:
            the output of the decomposition network on X as auxiliary features next to X in least squares.
        decomposition: How the columns are predicted from each other in mode ``"selection"``: ``"linear"``, least
            squares from one inverse covariance matrix (milliseconds); or ``"network"``, the decomposition network with
            held-out R², or least squares where that does better, for columns whose relations are not linear (seconds).
        auxiliary: In mode ``"selection"``, give the prediction also ĝ(kept columns) ≈ E[dropped | kept] from a small
            network. It captures part of what is not linear in y; ``coef_`` remains the plain linear one.
        fit_intercept: Whether to fit an intercept.
        alpha: Level of the significance tests, divided by the number of columns.
        share_threshold: A column is a suspect where y alone tells more than this share of what can be told about it.
        ratio_threshold: A suspect is dropped where k/m lies below this.
        hidden: Widths of the hidden layers of the networks.
        learning_rate: Learning rate of the networks (Adam).
        batch_size: Rows per step of the networks. A table is never copied as a whole.
        max_steps: Most steps for the decomposition network; it stops when the held-out loss no longer falls.
        random_state: Seed of the networks.

    Attributes:
        coef_: Coefficients, of shape (n_features,); 0 for dropped columns.
        intercept_: Intercept.
        screening_: The evidence, in mode ``"selection"``; `explain` shows it as a table, `plot_explanation` as a plot.
        kept_: Mask of the columns in use.
        verdict_: The outcome of the screening as a sentence.
        decomposition_: The decomposition network, in mode ``"paper"``.
        n_features_in_: Number of columns seen in ``fit``.
        feature_names_in_: Their names, if X had any.

    Examples:
        >>> from pfdl.data import make_mmads
        >>> from pfdl.tabular import PFDLRegressor
        >>> data = make_mmads(1000, 10, 1.7, seed=0)
        >>> model = PFDLRegressor().fit(data.frame().drop(columns="y"), data.y)
        >>> model.get_feature_names_out().tolist()
        ['S1', 'S2', 'S3', 'S4', 'S5']
        >>> model.explain().loc["V1", "decision"]
        'follows the label'
    """

    def __init__(
        self,
        mode: str = "selection",
        *,
        decomposition: str = "linear",
        auxiliary: bool = False,
        fit_intercept: bool = True,
        alpha: float = 0.01,
        share_threshold: float = 0.5,
        ratio_threshold: float = 0.75,
        hidden: tuple[int, ...] = (64,),
        learning_rate: float = 0.01,
        batch_size: int = 128,
        max_steps: int = 5000,
        random_state: Any = None,
    ) -> None:
        self.mode = mode
        self.decomposition = decomposition
        self.auxiliary = auxiliary
        self.fit_intercept = fit_intercept
        self.alpha = alpha
        self.share_threshold = share_threshold
        self.ratio_threshold = ratio_threshold
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_steps = max_steps
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PFDLRegressor:
        """Fit to columns X of shape (n, p) and a numeric label y of shape (n,)."""
        if self.mode not in ("selection", "paper"):
            raise ValueError(f"mode is {self.mode!r}; choose 'selection' or 'paper'.")
        self._check_parameters()
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        for learnt in ("screening_", "decomposition_", "auxiliary_network_"):
            self.__dict__.pop(learnt, None)
        if self.mode == "paper":
            self._fit_paper(X, y)
        else:
            self._fit_selection(X, y)
        return self

    def predict(self, X: Any) -> FloatArray:
        """Predict y for the rows of X."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        if hasattr(self, "decomposition_"):
            X = np.hstack([X, correlated_part(self.decomposition_, X, self._moments)])
        elif hasattr(self, "auxiliary_network_"):
            X = self._with_auxiliary(X[:, self.kept_])
        else:
            linear: FloatArray = X @ self.coef_ + self.intercept_
            return linear
        predicted: FloatArray = self._predictor.predict(X)
        return predicted

    def _fit_selection(self, X: FloatArray, y: FloatArray) -> None:
        self.screening_ = self._screen(X, number_functions(y))
        self.kept_ = self.screening_.kept
        self.coef_ = np.zeros(X.shape[1])
        self.intercept_ = float(y.mean()) if self.fit_intercept else 0.0
        if not self.kept_.any():  # every column is constant
            return
        kept = X if self.kept_.all() else X[:, self.kept_]
        linear = LinearRegression(fit_intercept=self.fit_intercept).fit(kept, y)
        self.coef_[self.kept_], self.intercept_ = linear.coef_, linear.intercept_
        followers = X[:, self.screening_.decision == FOLLOWS_LABEL]
        if self.auxiliary and followers.shape[1]:
            self._fit_auxiliary(kept, followers, y)

    def _fit_auxiliary(self, kept: FloatArray, followers: FloatArray, y: FloatArray) -> None:
        self._moments = Moments.of(kept, np.empty((len(kept), 0)))
        target = (followers - followers.mean(axis=0)) / followers.std(axis=0)
        self.auxiliary_network_ = MLPRegressor(
            hidden_layer_sizes=self.hidden,
            learning_rate_init=self.learning_rate,
            batch_size=min(self.batch_size, len(kept)),
            # Chosen by held-out R² of the dropped columns on biased tables alone, never by a test environment.
            alpha=3.0,
            early_stopping=True,
            n_iter_no_change=20,
            random_state=self.random_state,
        ).fit(self._moments.scaled(kept), target.ravel() if target.shape[1] == 1 else target)
        self._predictor = LinearRegression(fit_intercept=self.fit_intercept).fit(self._with_auxiliary(kept), y)

    def _with_auxiliary(self, kept: FloatArray) -> FloatArray:
        expected = self.auxiliary_network_.predict(self._moments.scaled(kept))
        return np.hstack([kept, expected.reshape(len(kept), -1)])

    def _fit_paper(self, X: FloatArray, y: FloatArray) -> None:
        p = X.shape[1]
        self.kept_ = np.ones(p, dtype=bool)
        features = X
        if p > 1 and len(X) > 1:  # one column has no others to be predicted from
            self._moments = Moments.of(X, np.empty((len(X), 0)))
            self.decomposition_, _ = self._training().fit(X, self._moments, sharing="strict")
            features = np.hstack([X, correlated_part(self.decomposition_, X, self._moments)])
        self._predictor = LinearRegression(fit_intercept=self.fit_intercept).fit(features, y)
        self.coef_, self.intercept_ = self._predictor.coef_[:p], self._predictor.intercept_
