"""DWR: Decorrelated Weighting Regression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import torch

from pfdl.objectives.weightings.dwr import decorrelating_weights, decorrelating_weights_by_lbfgs
from pfdl.tabular.moments import FloatArray, standardised
from pfdl.tabular.validation import Parameter, count, number_from_zero, one_of
from pfdl.tabular.weights import WeightedLeastSquares

_MOST_STEPS = {"lbfgs": 500, "rmsprop": 5000}
_CELLS_IN_DOUBLE_PRECISION = 2_000_000
_LARGEST_IN_SINGLE_PRECISION = 1e6


class DWRRegressor(WeightedLeastSquares):
    """Weighted least squares under sample weights that decorrelate all columns.

    Kuang et al., "Stable Prediction with Model Misspecification and Agnostic Distribution Shift",
    AAAI 2020. Stage one learns weights w = G∘G that minimise, on the whole table,

        (2000/p) Σ_j ‖ weighted covariance of column j with the others ‖₂ + 0.0005 (Σw − n)² +
        0.00005 Σw²,

    stage two is weighted least squares in closed form. The published code repeats the table p + 1
    times; here loss and gradient come from one weighted covariance matrix, the same as in
    :class:`pfdl.objectives.weightings.DWR`. It also keeps the checkpoint with the smallest error
    against the *true* coefficients, which nobody has outside a simulation; here the last one
    counts. On real tables the weights often rest on few rows, and the errors are then many times
    those of least squares; on small tables they may all fall to zero. ``fit`` warns of both.

    Args:
        standardize: Whether the weights are learnt from columns scaled to variance 1, so that units
            do not matter. False is the published form, in which columns with large values rule the
            loss; it is right for the paper's synthetic tables, whose columns have one size.
        solver: ``"lbfgs"``, at most 500 steps, which on MMADS mostly end near or below the loss of
            the published solver, not always; or ``"rmsprop"``, the published one. On small tables
            either may end at zero weights.
        max_iter: Most steps of stage one; by default 500 for L-BFGS, 5,000 for RMSProp.
        tol: Stage one stops when its loss changes by no more than this from one step to the next.

    Attributes:
        coef_: Coefficients, of shape (n_features,).
        intercept_: Intercept.
        sample_weight_: The learnt weights, with mean 1.
        effective_sample_size_: (Σw)² / Σw²: as many equally weighted rows would be worth as much.
            Below a tenth of the rows ``fit`` warns, as where the mean weight fell below 0.1, or the
            mean of y is better over all rows.
        loss_: Value of the loss at the end.
        n_iter_: Steps taken.
        n_features_in_: Number of columns seen in ``fit``.
        feature_names_in_: Their names, if X had any.

    Examples:
        >>> from pfdl.data import make_mmads
        >>> from pfdl.tabular import DWRRegressor
        >>> data = make_mmads(1000, 10, 1.7, seed=0)
        >>> model = DWRRegressor().fit(data.X, data.y)
        >>> bool(100 < model.effective_sample_size_ < 500)
        True
    """

    _parameters: ClassVar[Mapping[str, Parameter]] = {
        "solver": one_of(*_MOST_STEPS),
        "max_iter": count(or_none=True),
        "tol": number_from_zero(or_zero=True),
    }

    def __init__(
        self,
        *,
        standardize: bool = True,
        solver: Literal["lbfgs", "rmsprop"] = "lbfgs",
        max_iter: int | None = None,
        tol: float = 1e-8,
    ) -> None:
        self.standardize = standardize
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol

    def _learn(self, X: FloatArray, y: FloatArray) -> None:
        # Of centring, the loss sees rounding alone
        Z = standardised(X) if self.standardize else X - X.mean(axis=0)
        large = (
            Z.size > _CELLS_IN_DOUBLE_PRECISION and np.abs(Z).max() < _LARGEST_IN_SINGLE_PRECISION
        )
        columns = torch.from_numpy(
            np.ascontiguousarray(Z, dtype=np.float32 if large else np.float64)
        )
        steps = _MOST_STEPS[self.solver] if self.max_iter is None else self.max_iter
        solve = decorrelating_weights_by_lbfgs if self.solver == "lbfgs" else decorrelating_weights
        learnt = solve(columns, steps=steps, tol=self.tol)
        self.loss_ = learnt.loss
        self.n_iter_ = learnt.steps
        weights = learnt.weights.double().numpy()
        if not np.isfinite(learnt.loss) or not np.isfinite(weights).all():
            raise ValueError(
                "the weights of DWR diverged; with standardize=True columns of any size are fine."
            )
        self._fit_under(weights, X, y, mean=float(weights.mean()))
