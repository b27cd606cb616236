"""How good, and how even across environments, a regression or a classification is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score, log_loss, root_mean_squared_error
from sklearn.utils.validation import check_consistent_length, column_or_1d

from pfdl.tabular.validation import check_groups

if TYPE_CHECKING:
    import pandas as pd


#: The paper's measure of a regression in one environment.
rmse = root_mean_squared_error


def stability_report(
    model: Any, X: Any, y: ArrayLike, groups: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> pd.DataFrame:
    """Judge a fitted regressor or classifier on every environment of a table.

    Of the errors over environments, the mean is what the paper calls average error (AE), and the
    standard deviation, ``std(ddof=0)``, its stability error (SE); ``idxmax()`` names the worst
    environment.

    Args:
        model: anything fitted with a ``predict(X)``. scikit-learn says whether it is a classifier;
            of one, accuracy and, if it has ``predict_proba``, log loss are reported; of anything
            else RMSE.
        X: the columns; an array, a pandas table, whatever ``model.predict`` takes.
        y: the outcome.
        groups: which environment each row belongs to: region, year, hospital, ….
        sample_weight: weight of each row.

    Returns:
        One row per environment: ``rows`` and ``rmse``, or ``rows``, ``accuracy`` and ``log_loss``.

    Examples:
        >>> from sklearn.dummy import DummyRegressor
        >>> model = DummyRegressor(strategy="constant", constant=0.0).fit([[0.0]], [0.0])
        >>> report = stability_report(
        ...     model, [[0.0]] * 3, [1.0, 1.0, 3.0], ["north", "north", "south"]
        ... )
        >>> report["rmse"].tolist()
        [1.0, 3.0]
    """
    import pandas as pd

    truth = column_or_1d(np.asarray(y))
    names = check_groups(groups, len(truth))
    weight = np.ones(len(truth)) if sample_weight is None else np.asarray(sample_weight)
    measures = _measures(model, X)
    for measure in measures:
        check_consistent_length(truth, measure.predicted, weight)
    rows: dict[Any, dict[str, float]] = {}
    for name in np.unique(names):
        here = names == name
        rows[name] = {"rows": int(here.sum())}
        for measure in measures:
            rows[name][measure.name] = measure.score(
                truth[here], measure.predicted[here], sample_weight=weight[here]
            )
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("group")


class _Measure(NamedTuple):
    """A score by scikit-learn, and the predictions that it takes."""

    name: str
    score: Callable[..., float]
    predicted: NDArray[Any]


def _measures(model: Any, X: Any) -> list[_Measure]:
    predicted = np.asarray(model.predict(X))
    if not is_classifier(model):
        return [_Measure("rmse", root_mean_squared_error, predicted)]
    measures = [_Measure("accuracy", accuracy_score, predicted)]
    if hasattr(model, "predict_proba"):
        score = partial(log_loss, labels=model.classes_)
        measures.append(_Measure("log_loss", score, np.asarray(model.predict_proba(X))))
    return measures
