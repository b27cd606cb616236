"""Any regressor or classifier behind the selection screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, has_fit_parameter

from pfdl._internal.fitting import all_or_nothing
from pfdl.tabular.screening import FOLLOWS_LABEL
from pfdl.tabular.selector import SelectionScreen
from pfdl.tabular.validation import check_rows, check_table

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]


def _fitted_has(name: str) -> Any:
    def check(model: Any) -> bool:
        return hasattr(getattr(model, "estimator_", None) or model._base(), name)

    return check


class _Screened(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Screen the columns, then fit an estimator to those that were kept."""

    estimator: BaseEstimator | None
    screen: SelectionScreen | None
    screen_: SelectionScreen
    estimator_: Any

    def explain(self, input_features: Any = None) -> pd.DataFrame:
        """Say why each column was kept or dropped; see `SelectionScreen.explain`."""
        check_is_fitted(self)
        return self.screen_.explain(input_features)

    def plot(self, ax: Any = None, input_features: Any = None) -> Any:
        """Draw m, k and the decision of each column. Returns the Matplotlib axes."""
        check_is_fitted(self)
        return self.screen_.plot(ax, input_features)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns that were kept."""
        check_is_fitted(self)
        names: NDArray[Any] = self.screen_.get_feature_names_out(input_features)
        return names

    @property
    def verdict_(self) -> str:
        """The outcome of the screening in a sentence."""
        check_is_fitted(self)
        return self.screen_.verdict_

    @property
    def kept_(self) -> NDArray[np.bool_]:
        """Mask of the columns in use."""
        check_is_fitted(self)
        mask: NDArray[np.bool_] = self.screen_.get_support()
        return mask

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict y for the rows of X."""
        kept = self._kept_columns(X)
        predicted: NDArray[Any] = self.estimator_.predict(kept)
        return predicted

    def _base(self) -> Any:
        raise NotImplementedError

    def _fit_screen(self, X: Any, y: Any, sample_weight: Any, groups: Any, target: str) -> None:
        screen = SelectionScreen() if self.screen is None else clone(self.screen)
        if screen.target == "auto":
            screen.set_params(target=target)
        self.screen_ = screen.fit(X, y, sample_weight=sample_weight, groups=groups)

    def _fit_base(self, kept: FloatArray, y: Any, sample_weight: Any) -> Any:
        base = self._base()
        if sample_weight is None:
            return base.fit(kept, y)
        sample_weight = _check_sample_weight(sample_weight, kept)
        if isinstance(self.estimator, BaseEstimator) and not has_fit_parameter(base, "sample_weight"):
            raise TypeError(f"{type(base).__name__} takes no sample_weight; fit without, or choose another estimator.")
        if self.estimator is None and hasattr(base, "steps"):  # the default pipeline: both of its steps take weights
            return base.fit(kept, y, **{f"{name}__sample_weight": sample_weight for name, _ in base.steps})
        return base.fit(kept, y, sample_weight=sample_weight)

    def _kept_columns(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        kept: FloatArray = check_rows(self, X)[:, self.screen_.get_support()]
        return kept


class ScreenedRegressor(RegressorMixin, _Screened):  # type: ignore[misc]
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
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.screen = screen
        self.auxiliary = auxiliary
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> ScreenedRegressor:
        """Fit to columns X of shape (n, p) and a numeric label y of shape (n,).

        Args:
            X: The columns.
            y: The label.
            sample_weight: Weight of each row, for the screen and the estimator.
            groups: Environment of each row, for the screen; see `SelectionScreen.fit`.
        """
        table, numbers = check_table(self, X, y, numeric_y=True)
        self._fit_screen(X, numbers, sample_weight, groups, "number")
        kept = table[:, self.screen_.get_support()]
        self.estimator_ = self._fit_base(kept, numbers, sample_weight)
        self.__dict__.pop("auxiliary_network_", None)
        followers = table[:, self.screen_.screening_.decision == FOLLOWS_LABEL]
        if self.auxiliary and followers.shape[1]:
            self._fit_auxiliary(kept, followers)
            self.auxiliary_estimator_ = self._fit_base(self._with_auxiliary(kept), numbers, sample_weight)
        return self

    def predict(self, X: Any) -> FloatArray:
        """Predict y for the rows of X."""
        kept = self._kept_columns(X)
        if hasattr(self, "auxiliary_network_"):
            predicted: FloatArray = self.auxiliary_estimator_.predict(self._with_auxiliary(kept))
        else:
            predicted = self.estimator_.predict(kept)
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

    def _base(self) -> Any:
        return LinearRegression() if self.estimator is None else clone(self.estimator)

    def _fit_auxiliary(self, kept: FloatArray, followers: FloatArray) -> None:
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


class ScreenedClassifier(ClassifierMixin, _Screened):  # type: ignore[misc]
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

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> ScreenedClassifier:
        """Fit to columns X of shape (n, p) and classes y of shape (n,).

        Args:
            X: The columns.
            y: The classes.
            sample_weight: Weight of each row, for the screen and the estimator.
            groups: Environment of each row, for the screen; see `SelectionScreen.fit`.
        """
        table, classes = check_table(self, X, y)
        check_classification_targets(classes)
        self.classes_ = np.unique(classes)
        if len(self.classes_) < 2:
            raise ValueError(
                f"There is one class only, {self.classes_.tolist()[0]!r}; a classifier needs at least two."
            )
        self._fit_screen(X, classes, sample_weight, groups, "class")
        self.estimator_ = self._fit_base(table[:, self.screen_.get_support()], classes, sample_weight)
        return self

    @available_if(_fitted_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """Predict class probabilities, of shape (n, classes)."""
        kept = self._kept_columns(X)
        probability: FloatArray = self.estimator_.predict_proba(kept)
        return probability

    @available_if(_fitted_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> FloatArray:
        """Return the decision function of the estimator."""
        kept = self._kept_columns(X)
        values: FloatArray = self.estimator_.decision_function(kept)
        return values

    def _base(self) -> Any:
        if self.estimator is None:
            return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        return clone(self.estimator)
