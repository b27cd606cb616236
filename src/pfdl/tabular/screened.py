"""Any regressor or classifier behind the selection screen."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from pfdl.tabular.selector import SelectionScreen
from pfdl.tabular.validation import check_table
from pfdl.tabular.weights import LinearRegressorBase, least_squares
from pfdl.tabular.wrapping import ScreenedEstimator, if_estimator_has

FloatArray = NDArray[np.float64]


def _requesting_weights(estimator: Any) -> Any:
    """Let an estimator of ours ask for the weights where scikit-learn routes them."""
    if get_config()["enable_metadata_routing"]:
        estimator.set_fit_request(sample_weight=True)
    return estimator


class LeastSquares(LinearRegressorBase):
    """Ordinary least squares that does not depend on the units of the columns."""

    def fit(self, X: FloatArray, y: FloatArray, sample_weight: FloatArray | None = None) -> LeastSquares:
        """Fit to columns X of shape (n, p) and a numeric label y of shape (n,)."""
        X, y = check_table(self, X, y, numeric_y=True)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        self.coef_, self.intercept_ = least_squares(X, y, weight)
        return self


class ScreenedRegressor(RegressorMixin, ScreenedEstimator):  # type: ignore[misc]
    """Regressor on the columns that `SelectionScreen` keeps.

    Where nothing points to a selection of the rows, all columns are kept and the result is that of the estimator alone.

    Args:
        estimator: What is fitted to the kept columns; ordinary least squares by default.
        screen: The screen; ``SelectionScreen()`` by default.
        auxiliary: Give the estimator also ĝ(kept columns) ≈ E[dropped | kept] from a small network. It captures part
            of what is not linear in y; ``coef_`` remains that of the estimator on the kept columns alone.
        random_state: Seed of that network.

    Attributes:
        estimator_: The estimator, fitted to the kept columns.
        screen_: The screen; `explain` and `plot` show its evidence.
        kept_: Mask of the columns in use.
        verdict_: The outcome of the screening in a sentence.
        coef_: Coefficients, 0 for dropped columns, if the estimator has any.
        intercept_: Intercept, if the estimator has one.
        n_features_in_: Number of columns seen in ``fit``.
        feature_names_in_: Their names, if X had any.

    Examples:
        >>> from pfdl.data import make_mmads
        >>> from pfdl.tabular import ScreenedRegressor
        >>> table = make_mmads(1000, 10, 1.7, seed=0).frame()
        >>> model = ScreenedRegressor().fit(table.drop(columns="y"), table["y"])
        >>> model.get_feature_names_out().tolist()
        ['S1', 'S2', 'S3', 'S4', 'S5']
    """

    def __init__(
        self,
        estimator: BaseEstimator | None = None,
        *,
        screen: SelectionScreen | None = None,
        auxiliary: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.screen = screen
        self.auxiliary = auxiliary
        self.random_state = random_state

    def predict(self, X: Any) -> FloatArray:
        """Predict y for the rows of X."""
        if not hasattr(self, "auxiliary_network_"):
            return super().predict(X)
        predicted: FloatArray = self.auxiliary_estimator_.predict(self._with_auxiliary(self._kept_columns(X)))
        return predicted

    @property
    def coef_(self) -> FloatArray:
        """Coefficients of shape (n_features,), 0 for dropped columns."""
        full = np.zeros(self.n_features_in_)
        full[self.screen_.get_support()] = np.ravel(self.estimator_.coef_)
        return full

    @property
    def intercept_(self) -> float:
        """Intercept."""
        intercept: float = self.estimator_.intercept_
        return intercept

    @property
    def _target(self) -> Literal["number", "class"]:
        return "number"

    def _check(self, X: Any, y: Any) -> tuple[FloatArray, Any]:
        return check_table(self, X, y, numeric_y=True, allow_nan=self._allows_nan())

    def _default(self) -> Any:
        return _requesting_weights(LeastSquares())

    def _fit_estimator(self, table: FloatArray, label: Any, params: dict[str, Any]) -> None:
        super()._fit_estimator(table, label, params)
        self.__dict__.pop("auxiliary_network_", None)
        kept, followers = table[:, self.screen_.get_support()], table[:, self.screen_.screening_.followers]
        if self.auxiliary and followers.shape[1]:
            self._fit_auxiliary(kept, followers)
            self.auxiliary_estimator_ = self._base().fit(self._with_auxiliary(kept), label, **params)

    def _fit_auxiliary(self, kept: FloatArray, followers: FloatArray) -> None:
        from sklearn.neural_network import MLPRegressor  # half a second of imports

        self._scaler = StandardScaler().fit(kept)
        target = StandardScaler().fit_transform(followers)
        self.auxiliary_network_ = MLPRegressor(
            hidden_layer_sizes=(64,),
            learning_rate_init=0.01,
            batch_size=min(128, len(kept)),
            # Chosen by held-out R² of the dropped columns on biased tables alone, never by a test environment.
            alpha=3.0,
            early_stopping=True,
            n_iter_no_change=20,
            random_state=self.random_state,
        ).fit(self._scaler.transform(kept), target.ravel() if target.shape[1] == 1 else target)

    def _with_auxiliary(self, kept: FloatArray) -> FloatArray:
        expected = self.auxiliary_network_.predict(self._scaler.transform(kept))
        return np.hstack([kept, expected.reshape(len(kept), -1)])


class ScreenedClassifier(ClassifierMixin, ScreenedEstimator):  # type: ignore[misc]
    """Classifier on the columns that `SelectionScreen` keeps.

    The class enters the screening through its indicators. A class tells less than a number, so selection leaves weaker
    marks and more rows are needed to see it.

    Args:
        estimator: What is fitted to the kept columns; logistic regression on standardised columns by default.
        screen: The screen; ``SelectionScreen()`` by default.

    Attributes:
        classes_: The classes.
        estimator_: The estimator, fitted to the kept columns.
        screen_: The screen; `explain` and `plot` show its evidence.
        kept_: Mask of the columns in use.
        verdict_: The outcome of the screening in a sentence.
        n_features_in_: Number of columns seen in ``fit``.
        feature_names_in_: Their names, if X had any.
    """

    def __init__(self, estimator: BaseEstimator | None = None, *, screen: SelectionScreen | None = None) -> None:
        self.estimator = estimator
        self.screen = screen

    @if_estimator_has("predict_proba")
    def predict_proba(self, X: Any) -> FloatArray:
        """Predict class probabilities, of shape (n, classes)."""
        kept = self._kept_columns(X)
        probability: FloatArray = self.estimator_.predict_proba(kept)
        return probability

    @if_estimator_has("decision_function")
    def decision_function(self, X: Any) -> FloatArray:
        """Return the decision function of the estimator."""
        kept = self._kept_columns(X)
        values: FloatArray = self.estimator_.decision_function(kept)
        return values

    @property
    def _target(self) -> Literal["number", "class"]:
        return "class"

    def _check(self, X: Any, y: Any) -> tuple[FloatArray, Any]:
        table, classes = check_table(self, X, y, allow_nan=self._allows_nan())
        check_classification_targets(classes)
        self.classes_ = np.unique(classes)
        if len(self.classes_) < 2:
            raise ValueError(
                f"There is one class only, {self.classes_.tolist()[0]!r}; a classifier needs at least two."
            )
        return table, classes

    def _default(self) -> Any:
        logistic = LogisticRegression(max_iter=1000)
        return make_pipeline(_requesting_weights(StandardScaler()), _requesting_weights(logistic))
