"""Any regressor behind the selection screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from pfdl._internal.fitting import all_or_nothing
from pfdl.tabular.selector import SelectionScreen
from pfdl.tabular.validation import check_rows, check_table
from pfdl.tabular.weights import LinearRegressorBase, least_squares

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]


class LeastSquares(LinearRegressorBase):
    """Ordinary least squares that does not depend on the units of the columns."""

    def fit(self, X: FloatArray, y: FloatArray, sample_weight: FloatArray | None = None) -> LeastSquares:
        """Fit to columns X of shape (n, p) and a numeric label y of shape (n,)."""
        X, y = check_table(self, X, y, numeric_y=True)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        self.coef_, self.intercept_ = least_squares(X, y, weight)
        return self


class ScreenedRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Regressor on the columns that `SelectionScreen` keeps.

    Where nothing points to a selection of the rows, all columns are kept and the result is that of the estimator alone.
    For classes, or where weights have to reach the steps of a pipeline by scikit-learn's metadata routing, put the
    screen into a pipeline: ``make_pipeline(SelectionScreen(), LogisticRegression())``.

    Args:
        estimator: What is fitted to the kept columns; ordinary least squares by default.
        screen: The screen; ``SelectionScreen()`` by default.

    Attributes:
        estimator_: The estimator, fitted to the kept columns.
        screen_: The screen, with its ``suspects_`` and ``plot()``.
        n_features_in_: Number of columns seen in ``fit``.
        feature_names_in_: Their names, if X had any.

    Examples:
        >>> from pfdl.data import make_mmads
        >>> from pfdl.tabular import ScreenedRegressor
        >>> table = make_mmads(1000, 10, 1.7, seed=0).frame()
        >>> model = ScreenedRegressor().fit(table.drop(columns="y"), table["y"])
        >>> model.screen_.get_feature_names_out().tolist()
        ['S1', 'S2', 'S3', 'S4', 'S5']
    """

    def __init__(self, estimator: BaseEstimator | None = None, *, screen: SelectionScreen | None = None) -> None:
        self.estimator = estimator
        self.screen = screen

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> ScreenedRegressor:
        """Screen the columns X of shape (n, p) by a numeric label y of shape (n,), and fit the estimator.

        Args:
            X: The columns.
            y: The label.
            sample_weight: Weight of each row, for the screen and the estimator.
            groups: Environment of each row, for the screen; see `SelectionScreen.fit`.
        """
        table, label = check_table(self, X, y, numeric_y=True, allow_nan=self._allows_nan())
        screen = SelectionScreen() if self.screen is None else clone(self.screen)
        if screen.target == "auto":
            screen.set_params(target="number")
        self.screen_ = screen.fit(X, label, sample_weight=sample_weight, groups=groups)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        self.estimator_ = self._base().fit(table[:, self.kept_], label, **weights)
        return self

    def predict(self, X: Any) -> FloatArray:
        """Predict y for the rows of X."""
        check_is_fitted(self)
        kept = check_rows(self, X, allow_nan=self._allows_nan())[:, self.kept_]
        predicted: FloatArray = self.estimator_.predict(kept)
        return predicted

    def explain(self) -> pd.DataFrame:
        """Return what the screen found of each column, the most suspicious first; see `SelectionScreen.explain`."""
        check_is_fitted(self)
        return self.screen_.explain()

    @property
    def verdict_(self) -> str:
        """The outcome of the screening in a few sentences that name the columns and say what to do."""
        return self.screen_.verdict_

    @property
    def kept_(self) -> NDArray[np.bool_]:
        """Mask of the columns in use."""
        return self.screen_.screening_.kept

    @property
    def coef_(self) -> FloatArray:
        """Coefficients of shape (n_features,), 0 for dropped columns; of an estimator that has some."""
        full = np.zeros(self.n_features_in_)
        full[self.kept_] = np.ravel(self.estimator_.coef_)
        return full

    @property
    def intercept_(self) -> float:
        """Intercept, of an estimator that has one."""
        intercept: float = self.estimator_.intercept_
        return intercept

    def _base(self) -> Any:
        """Return the estimator that is to be fitted."""
        return LeastSquares() if self.estimator is None else clone(self.estimator)

    def _allows_nan(self) -> bool:
        return bool(get_tags(self._base()).input_tags.allow_nan)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._allows_nan()
        return tags
