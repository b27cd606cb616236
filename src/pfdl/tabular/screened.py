"""Least squares behind the leak screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from pfdl.tabular.selector import LeakScreen
from pfdl.tabular.validation import all_or_nothing, check_table, check_weights
from pfdl.tabular.weights import LinearRegressorBase, least_squares

if TYPE_CHECKING:
    import pandas as pd


class ScreenedRegressor(LinearRegressorBase):
    """Ordinary least squares on the columns that `LeakScreen` keeps.

    Where no column behaves like an effect of y, all columns are kept and the result is that of
    least squares alone. For any other estimator put the screen in front:
    ``make_pipeline(LeakScreen(), LogisticRegression())``.

    Args:
        screen: The screen; ``LeakScreen()`` by default.

    Attributes:
        coef_: Coefficients, of shape (n_features,); 0 for dropped columns.
        intercept_: Intercept.
        kept_: Mask of the columns in use.
        screen_: The screen, with its ``suspects_`` and ``plot()``.
        n_features_in_: Number of columns seen in ``fit``.
        feature_names_in_: Their names, if X had any.

    Examples:
        >>> from pfdl.data import make_mmads
        >>> from pfdl.tabular import ScreenedRegressor
        >>> table = make_mmads(1000, 10, 1.7, seed=0).frame()
        >>> model = ScreenedRegressor().fit(table.drop(columns="y"), table["y"])
        >>> model.screen_.get_feature_names_out().tolist()
        ['S1', 'S2', 'S3', 'S4', 'S5', 'V2', 'V3', 'V4', 'V5']
    """

    def __init__(self, *, screen: LeakScreen | None = None) -> None:
        self.screen = screen

    @all_or_nothing
    def fit(  # type: ignore[override]
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> ScreenedRegressor:
        """Screen the columns X of shape (n, p) by a numeric label y of shape (n,), and fit the kept
        ones.

        Args:
            X: The columns.
            y: The label.
            sample_weight: Weight of each row, for the screen and for least squares.
            groups: Environment of each row, for the screen; see `LeakScreen.fit`.
        """
        table, label = check_table(self, X, y, numeric_y=True)
        weight = None if sample_weight is None else check_weights(sample_weight, len(table))
        screen = LeakScreen() if self.screen is None else clone(self.screen)
        if screen.target == "auto":
            screen.set_params(target="number")
        self.screen_ = screen.fit(X, label, sample_weight=weight, groups=groups)
        self.kept_ = self.screen_.get_support()
        self.coef_ = np.zeros(table.shape[1])
        self.coef_[self.kept_], self.intercept_ = least_squares(table[:, self.kept_], label, weight)
        return self

    def explain(self) -> pd.DataFrame:
        """Return what the screen found of each column, the most suspicious first; see
        `LeakScreen.explain`.
        """
        check_is_fitted(self)
        return self.screen_.explain()

    @property
    def verdict_(self) -> str:
        """The outcome of the screening in a few sentences that name the columns and say what to
        do.
        """
        return self.screen_.verdict_
