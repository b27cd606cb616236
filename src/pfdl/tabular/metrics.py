"""How good, and how even across environments, a regression is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import root_mean_squared_error
from sklearn.utils.validation import check_consistent_length, column_or_1d

if TYPE_CHECKING:
    import pandas as pd


def beta_error(true: ArrayLike, estimated: ArrayLike) -> float:
    """Mean absolute difference between true and estimated coefficients, (1/p) ‖β − β̂‖₁.

    Give it the unstable columns alone for the paper's β_V_error, the stable ones for β_S_error.

    Examples:
        >>> beta_error([1.0, 0.0], [0.5, 0.1])
        0.3
    """
    beta, estimate = _vector(true), _vector(estimated)
    if beta.shape != estimate.shape or not beta.size:
        raise ValueError(
            f"beta_error compares two equally long, non-empty vectors of coefficients, got {beta.size} true "
            f"and {estimate.size} estimated."
        )
    return float(np.abs(beta - estimate).mean())


def rmse(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Root mean squared error, sqrt(mean (y − ŷ)²).

    Examples:
        >>> rmse([0.0, 0.0], [3.0, 3.0])
        3.0
    """
    return float(root_mean_squared_error(y_true, y_pred))


def average_error(environment_rmse: ArrayLike) -> float:
    """AE: the mean of the RMSE over environments, each environment counting once.

    Examples:
        >>> average_error([1.0, 3.0])
        2.0
    """
    return float(_errors(environment_rmse).mean())


def stability_error(environment_rmse: ArrayLike, *, ddof: int = 0) -> float:
    """SE: the standard deviation of the RMSE over environments.

    Args:
        environment_rmse: one RMSE per environment.
        ddof: the divisor is the number of environments minus ``ddof``. 0, the default, fits the paper's figures best;
            1 is the formula printed by the authors of DWR.

    Examples:
        >>> stability_error([1.0, 3.0])
        1.0
    """
    errors = _errors(environment_rmse)
    if errors.size <= ddof:
        raise ValueError(f"With ddof={ddof} at least {ddof + 1} environments are needed, got {errors.size}.")
    return float(errors.std(ddof=ddof))


def stability_report(model: Any, X: Any, y: ArrayLike, groups: ArrayLike, *, ddof: int = 0) -> StabilityReport:
    """Judge a fitted regressor on every environment of a table.

    Args:
        model: anything fitted with a ``predict(X)``.
        X: the columns; an array, a pandas table, whatever ``model.predict`` takes.
        y: the outcome.
        groups: which environment each row belongs to: region, year, hospital, ….
        ddof: see `stability_error`.

    Examples:
        >>> from sklearn.dummy import DummyRegressor
        >>> model = DummyRegressor(strategy="constant", constant=0.0).fit([[0.0]], [0.0])
        >>> report = stability_report(model, [[0.0]] * 3, [1.0, 1.0, 3.0], ["north", "north", "south"])
        >>> report.average_error, report.stability_error, report.worst_group, report.worst_rmse
        (2.0, 1.0, 'south', 3.0)
    """
    truth, predicted = _vector(y), _vector(model.predict(X))
    names, membership = np.unique(column_or_1d(np.asarray(groups)), return_inverse=True)
    check_consistent_length(predicted, truth, membership)
    counts = np.bincount(membership)
    squared = np.bincount(membership, weights=(truth - predicted) ** 2)
    return StabilityReport(names, counts, np.sqrt(squared / counts), ddof)


class StabilityReport:
    """RMSE per environment and what follows from it; prints as a small table.

    Attributes:
        groups: the environments, sorted.
        counts: rows in each.
        rmse: RMSE in each.
        average_error: AE, the mean of ``rmse``.
        stability_error: SE, the standard deviation of ``rmse`` (nan where ``ddof`` leaves no environment).
        worst_group: the environment with the largest RMSE.
        worst_rmse: that RMSE.
    """

    def __init__(self, groups: NDArray[Any], counts: NDArray[Any], rmse: NDArray[np.float64], ddof: int) -> None:
        self.groups = groups
        self.counts = counts
        self.rmse = rmse
        self.average_error = average_error(rmse)
        self.stability_error = stability_error(rmse, ddof=ddof) if len(rmse) > ddof else float("nan")
        worst = int(np.argmax(rmse))
        self.worst_group = groups[worst].item() if hasattr(groups[worst], "item") else groups[worst]
        self.worst_rmse = float(rmse[worst])

    def frame(self) -> pd.DataFrame:
        """One row per environment: ``rows`` and ``rmse``."""
        import pandas as pd

        return pd.DataFrame({"rows": self.counts, "rmse": self.rmse}, index=pd.Index(self.groups, name="group"))

    def __str__(self) -> str:
        return (
            f"{self.frame().to_string(float_format='{:.4f}'.format)}\n"
            f"AE {self.average_error:.4f}  SE {self.stability_error:.4f}  "
            f"worst {self.worst_group} ({self.worst_rmse:.4f})"
        )

    def __repr__(self) -> str:
        return str(self)


def _vector(values: ArrayLike) -> NDArray[np.float64]:
    vector: NDArray[np.float64] = column_or_1d(np.asarray(values, dtype=np.float64))
    return vector


def _errors(environment_rmse: ArrayLike) -> NDArray[np.float64]:
    errors = _vector(environment_rmse)
    if not errors.size or not np.isfinite(errors).all():
        raise ValueError(f"One finite RMSE per environment is needed, got {errors.tolist()}.")
    return errors
