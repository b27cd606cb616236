"""How good, and how even across environments, a regression or a classification is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier
from sklearn.metrics import root_mean_squared_error
from sklearn.utils.validation import check_consistent_length, column_or_1d

if TYPE_CHECKING:
    import pandas as pd


def beta_error(true: ArrayLike, estimated: ArrayLike) -> float:
    """Return the mean absolute difference between true and estimated coefficients, (1/p) ‖β − β̂‖₁.

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
    """Return the root mean squared error, sqrt(mean (y − ŷ)²).

    Examples:
        >>> rmse([0.0, 0.0], [3.0, 3.0])
        3.0
    """
    return float(root_mean_squared_error(y_true, y_pred))


def average_error(environment_rmse: ArrayLike) -> float:
    """Return AE, the mean of the RMSE over environments, each environment counting once.

    Examples:
        >>> average_error([1.0, 3.0])
        2.0
    """
    return float(_errors(environment_rmse).mean())


def stability_error(environment_rmse: ArrayLike, *, ddof: int = 0) -> float:
    """Return SE, the standard deviation of the RMSE over environments.

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


def stability_report(
    model: Any, X: Any, y: ArrayLike, groups: ArrayLike, *, sample_weight: ArrayLike | None = None, ddof: int = 0
) -> StabilityReport:
    """Judge a fitted regressor or classifier on every environment of a table.

    Args:
        model: anything fitted with a ``predict(X)``. scikit-learn says whether it is a classifier; of one, accuracy
            and, if it has ``predict_proba``, log loss are reported; of anything else RMSE.
        X: the columns; an array, a pandas table, whatever ``model.predict`` takes.
        y: the outcome.
        groups: which environment each row belongs to: region, year, hospital, ….
        sample_weight: weight of each row.
        ddof: see `stability_error`.

    Examples:
        >>> from sklearn.dummy import DummyRegressor
        >>> model = DummyRegressor(strategy="constant", constant=0.0).fit([[0.0]], [0.0])
        >>> report = stability_report(model, [[0.0]] * 3, [1.0, 1.0, 3.0], ["north", "north", "south"])
        >>> report.average_error, report.stability_error, report.worst_group, report.worst
        (2.0, 1.0, 'south', 3.0)
    """
    names, membership = np.unique(column_or_1d(np.asarray(groups)), return_inverse=True)
    predicted = np.asarray(model.predict(X))
    weight = np.ones(len(predicted)) if sample_weight is None else _vector(sample_weight)
    check_consistent_length(predicted, np.asarray(y), membership, weight)
    total = np.bincount(membership, weights=weight)
    if not (total > 0).all():
        raise ValueError(f"environment {names.tolist()[int(np.argmin(total))]!r} has no weight; leave its rows out.")

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        averages: NDArray[np.float64] = np.bincount(membership, weights=weight * values) / total
        return averages

    if is_classifier(model):
        truth = column_or_1d(np.asarray(y))
        found = {"accuracy": mean((predicted == truth).astype(float))}
        if hasattr(model, "predict_proba"):
            found["log_loss"] = mean(_log_loss(model, X, truth))
    else:
        found = {"rmse": np.sqrt(mean((_vector(y) - _vector(predicted)) ** 2))}
    return StabilityReport(names, np.bincount(membership), found, ddof)


class StabilityReport:
    """A measure per environment and what follows from it; prints as a small table.

    Attributes:
        groups: the environments, sorted.
        counts: rows in each.
        measures: the measures by name, one value per environment: ``rmse``; or ``accuracy`` and ``log_loss``.
        errors: what is averaged: RMSE, or one minus the accuracy.
        average_error: AE, the mean of ``errors``.
        stability_error: SE, the standard deviation of ``errors`` (nan where ``ddof`` leaves no environment).
        worst_group: the environment with the largest error.
        worst: its RMSE, or its accuracy.
    """

    def __init__(
        self, groups: NDArray[Any], counts: NDArray[Any], measures: dict[str, NDArray[np.float64]], ddof: int
    ) -> None:
        self.groups = groups
        self.counts = counts
        self.measures = measures
        self.measure, values = next(iter(measures.items()))
        self.errors = 1.0 - values if self.measure == "accuracy" else values
        self.average_error = average_error(self.errors)
        self.stability_error = stability_error(self.errors, ddof=ddof) if len(values) > ddof else float("nan")
        worst = int(np.argmax(self.errors))
        self.worst_group = groups[worst].item() if hasattr(groups[worst], "item") else groups[worst]
        self.worst = float(values[worst])

    def frame(self) -> pd.DataFrame:
        """Return one row per environment: ``rows`` and the measures."""
        import pandas as pd

        return pd.DataFrame({"rows": self.counts, **self.measures}, index=pd.Index(self.groups, name="group"))

    def plot(self, ax: Any = None) -> Any:
        """Draw the first measure of each environment as a bar, the worst in red. Returns the Matplotlib axes."""
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots(figsize=(6.4, 0.3 * len(self.groups) + 1.2), layout="constrained")
        values, places = self.measures[self.measure], np.arange(len(self.groups))
        colours = np.where(places == int(np.argmax(self.errors)), "#c8442b", "#1b6ca8")
        ax.barh(places, values, color=colours)
        ax.set_yticks(places, [str(group) for group in self.groups])
        ax.invert_yaxis()
        ax.set_xlabel(self.measure)
        return ax

    def __str__(self) -> str:
        return (
            f"{self.frame().to_string(float_format='{:.4f}'.format)}\n"
            f"AE {self.average_error:.4f}  SE {self.stability_error:.4f}  "
            f"worst {self.worst_group} ({self.measure} {self.worst:.4f})"
        )

    __repr__ = __str__


def _log_loss(model: Any, X: Any, truth: NDArray[Any]) -> NDArray[np.float64]:
    classes = np.asarray(model.classes_)
    place = np.searchsorted(classes, truth).clip(max=len(classes) - 1)
    probability = np.asarray(model.predict_proba(X), dtype=np.float64)[np.arange(len(truth)), place]
    known = classes[place] == truth
    losses: NDArray[np.float64] = -np.log(np.maximum(np.where(known, probability, 0.0), np.finfo(float).eps))
    return losses


def _vector(values: ArrayLike) -> NDArray[np.float64]:
    vector: NDArray[np.float64] = column_or_1d(np.asarray(values, dtype=np.float64))
    return vector


def _errors(environment_rmse: ArrayLike) -> NDArray[np.float64]:
    errors = _vector(environment_rmse)
    if not errors.size or not np.isfinite(errors).all():
        raise ValueError(f"One finite RMSE per environment is needed, got {errors.tolist()}.")
    return errors
