"""Least squares behind the screen, with what the kept columns say of the dropped ones as further
columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

from pfdl.tabular import ScreenedRegressor, SelectionScreen
from pfdl.tabular.screening import FOLLOWS_LABEL

FloatArray = NDArray[np.float64]


class AuxiliaryRegressor(ScreenedRegressor):
    """Give least squares also ĝ(kept columns) ≈ E[dropped | kept] from a small network.

    It captures part of what is not linear in y; ``coef_`` remains that of the kept columns alone.

    Args:
        screen: The screen; ``SelectionScreen()`` by default.
        random_state: Seed of the network.
    """

    def __init__(
        self,
        *,
        screen: SelectionScreen | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(screen=screen)
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> AuxiliaryRegressor:  # type: ignore[override]  # no weights in this experiment
        """Screen the columns X of shape (n, p), fit the kept ones, and the network if a column was
        dropped.
        """
        super().fit(X, y)
        table, kept = np.asarray(X, dtype=np.float64), self.kept_
        followers = table[:, self.screen_.screening_.decision == FOLLOWS_LABEL]
        self.network_: MLPRegressor | None = None
        if followers.shape[1]:
            self._scaler = StandardScaler().fit(table[:, kept])
            target = StandardScaler().fit_transform(followers)
            self.network_ = MLPRegressor(
                hidden_layer_sizes=(64,),
                learning_rate_init=0.01,
                batch_size=min(128, len(table)),
                # Chosen by held-out R² of the dropped columns on biased tables alone, never by a
                # test environment.
                alpha=3.0,
                early_stopping=True,
                n_iter_no_change=20,
                random_state=self.random_state,
            ).fit(
                self._scaler.transform(table[:, kept]),
                target.ravel() if target.shape[1] == 1 else target,
            )
            self.auxiliary_estimator_ = LinearRegression().fit(
                self._with_auxiliary(table[:, kept]), y
            )
        return self

    def predict(self, X: Any) -> FloatArray:
        """Predict y for the rows of X."""
        if self.network_ is None:
            return super().predict(X)
        predicted: FloatArray = self.auxiliary_estimator_.predict(
            self._with_auxiliary(np.asarray(X, dtype=np.float64)[:, self.kept_])
        )
        return predicted

    def _with_auxiliary(self, kept: FloatArray) -> FloatArray:
        assert self.network_ is not None
        expected = self.network_.predict(self._scaler.transform(kept))
        return np.hstack([kept, expected.reshape(len(kept), -1)])
