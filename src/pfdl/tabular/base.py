"""What the estimators that screen their columns have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from pfdl.tabular.columns import explanation_frame, plot_explanation, screen_table
from pfdl.tabular.network import NetworkTraining
from pfdl.tabular.selection import Screening, linear_decomposer

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]


class ScreeningMixin:
    """Screens columns in ``fit`` and tells why afterwards. Expects the parameters that `PFDLRegressor` documents."""

    decomposition: str
    alpha: float
    share_threshold: float
    ratio_threshold: float
    hidden: tuple[int, ...]
    learning_rate: float
    batch_size: int
    max_steps: int
    random_state: Any
    screening_: Screening

    def explain(self) -> pd.DataFrame:
        """Why each column was kept or dropped.

        Returns:
            One row per column: ``m``, the share of it that the other columns explain; ``k``, the same once the label is
            known; ``ratio`` = k/m; ``share``, how much of all that can be told about the column the label tells alone;
            ``relevance``, p-value of "it adds nothing to the other columns"; ``decision``. ``verdict_`` says the same
            in a sentence.
        """
        return explanation_frame(self._screening(), list(_check_feature_names_in(self)))

    def plot_explanation(self, ax: Any = None) -> Any:
        """Draw `explain`: for each column m, k and the decision. Returns the Matplotlib axes."""
        return plot_explanation(self.explain(), self._screening().verdict, ax)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns that were kept."""
        names: NDArray[np.object_] = _check_feature_names_in(self, input_features)
        return names[self._screening().kept]

    @property
    def verdict_(self) -> str:
        """What the screening concluded, as a sentence."""
        return self._screening().verdict

    def _screening(self) -> Screening:
        check_is_fitted(self)
        if not hasattr(self, "screening_"):
            raise AttributeError("mode='paper' does not screen columns; only mode='selection' can tell why.")
        return self.screening_

    def _check_parameters(self) -> None:
        if self.decomposition not in ("linear", "network"):
            raise ValueError(f"decomposition is {self.decomposition!r}; choose 'linear' or 'network'.")
        for name in ("alpha", "share_threshold", "ratio_threshold"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ValueError(f"{name} is {value}; it must lie strictly between 0 and 1.")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate is {self.learning_rate}; it must be positive.")
        for name in ("batch_size", "max_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")

    def _training(self) -> NetworkTraining:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return NetworkTraining(tuple(self.hidden), self.learning_rate, self.batch_size, self.max_steps, seed)

    def _screen(self, X: FloatArray, label: FloatArray) -> Screening:
        return screen_table(
            X,
            label,
            decompose=self._training() if self.decomposition == "network" else linear_decomposer,
            alpha=self.alpha,
            share_threshold=self.share_threshold,
            ratio_threshold=self.ratio_threshold,
        )
