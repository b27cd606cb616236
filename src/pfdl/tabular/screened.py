"""Any regressor or classifier behind the selection screen."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, has_fit_parameter

from pfdl._internal.fitting import all_or_nothing
from pfdl.tabular.explaining import ExplainedScreening
from pfdl.tabular.selector import SelectionScreen
from pfdl.tabular.validation import check_rows, check_table
from pfdl.tabular.weights import LinearRegressorBase, least_squares

FloatArray = NDArray[np.float64]
Self = TypeVar("Self", bound="ScreenedEstimator")
Method = TypeVar("Method", bound=Callable[..., Any])


class ScreenedEstimator(ExplainedScreening, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Screen the columns, then fit an estimator to those that were kept."""

    estimator: Any
    screen: SelectionScreen | None
    screen_: SelectionScreen
    estimator_: Any

    @all_or_nothing
    def fit(self: Self, /, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, **fit_params: Any) -> Self:
        """Screen the columns X of shape (n, p) by a label y of shape (n,), and fit the estimator to the kept ones.

        With scikit-learn's metadata routing the estimator gets what it requests, as a step of a pipeline does, and the
        screen what is requested of this object: ``ScreenedRegressor(Ridge().set_fit_request(sample_weight=True))
        .set_fit_request(sample_weight=True, groups=True)``.

        Args:
            X: The columns.
            y: The label.
            sample_weight: Weight of each row, for the screen and the estimator. If the estimator is a pipeline, each of
                its steps that takes weights gets them.
            groups: Environment of each row, for the screen; see `SelectionScreen.fit`.
            **fit_params: Passed on to the ``fit`` of the estimator.
        """
        table, label = self._check(X, y)
        params = self._params_of_estimator(sample_weight, groups, fit_params)
        screen = SelectionScreen() if self.screen is None else clone(self.screen)
        if screen.target == "auto":
            screen.set_params(target=self._target)
        self.screen_ = screen.fit(X, label, sample_weight=sample_weight, groups=groups)
        self.estimator_ = self._base().fit(table[:, self.screen_.get_support()], label, **params)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict y for the rows of X."""
        kept = self._kept_columns(X)
        predicted: NDArray[Any] = self.estimator_.predict(kept)
        return predicted

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns that were kept."""
        names: NDArray[Any] = self._fitted_screen().get_feature_names_out(input_features)
        return names

    @property
    def kept_(self) -> NDArray[np.bool_]:
        """Mask of the columns in use."""
        mask: NDArray[np.bool_] = self._fitted_screen().get_support()
        return mask

    def get_metadata_routing(self) -> MetadataRouter:
        """Return who gets ``sample_weight``, ``groups`` and the like: this object (for the screen) and the estimator.

        Returns:
            scikit-learn's description of it.
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=self).add_self_request(self).add(estimator=self._base(), method_mapping=mapping)

    def _base(self) -> Any:
        """Return the estimator that is to be fitted."""
        return self._default() if self.estimator is None else clone(self.estimator)

    @property
    @abstractmethod
    def _target(self) -> Literal["number", "class"]:
        """What kind of label the screen is told to expect."""

    @abstractmethod
    def _check(self, X: Any, y: Any) -> tuple[FloatArray, Any]:
        """Validate X and y for ``fit``."""

    @abstractmethod
    def _default(self) -> Any:
        """Return the estimator that is fitted if the user gives none."""

    def _params_of_estimator(self, sample_weight: Any, groups: Any, fit_params: dict[str, Any]) -> dict[str, Any]:
        if get_config()["enable_metadata_routing"]:
            known = {"sample_weight": sample_weight, "groups": groups}
            given = {name: value for name, value in known.items() if value is not None}
            routed: dict[str, Any] = process_routing(self, "fit", **given, **fit_params).estimator.fit
            return routed
        if sample_weight is None:
            return fit_params
        return {**_weights_for(self._base(), sample_weight), **fit_params}

    def _fitted_screen(self) -> SelectionScreen:
        check_is_fitted(self)
        return self.screen_

    def _kept_columns(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        kept: FloatArray = check_rows(self, X, allow_nan=self._allows_nan())[:, self.screen_.get_support()]
        return kept

    def _allows_nan(self) -> bool:
        return bool(get_tags(self._base()).input_tags.allow_nan)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._allows_nan()
        return tags


def _weights_for(estimator: Any, sample_weight: Any) -> dict[str, Any]:
    """Return the arguments by which ``fit`` of an estimator, or of each step of a pipeline, gets the weights."""
    steps = estimator.steps if isinstance(estimator, Pipeline) else [("", estimator)]
    last = steps[-1][1]
    if not has_fit_parameter(last, "sample_weight"):
        raise TypeError(
            f"{type(last).__name__} takes no sample_weight; fit without, or choose another estimator. (Nested "
            "estimators get weights by scikit-learn's metadata routing.)"
        )
    return {
        f"{name}__sample_weight" if name else "sample_weight": sample_weight
        for name, step in steps
        if has_fit_parameter(step, "sample_weight")
    }


def _if_estimator_has(name: str) -> Callable[[Method], Method]:
    """Return a decorator that hides a method unless the estimator that is wrapped has it."""

    def check(model: ScreenedEstimator) -> bool:
        return hasattr(getattr(model, "estimator_", None) or model._base(), name)

    return cast("Callable[[Method], Method]", available_if(check))


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

    def __init__(self, estimator: BaseEstimator | None = None, *, screen: SelectionScreen | None = None) -> None:
        self.estimator = estimator
        self.screen = screen

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

    @_if_estimator_has("predict_proba")
    def predict_proba(self, X: Any) -> FloatArray:
        """Predict class probabilities, of shape (n, classes)."""
        kept = self._kept_columns(X)
        probability: FloatArray = self.estimator_.predict_proba(kept)
        return probability

    @_if_estimator_has("decision_function")
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
