"""Is a model leaning on correlations? What its features tell about each other, about classes and about contexts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfdl.decorrelation.linear import predict_left_out
from pfdl.diagnosis.clusters import cluster_features
from pfdl.diagnosis.contexts import Accuracies, ContextReading, GroupAccuracy, measure_accuracy, read_context
from pfdl.diagnosis.result import Diagnosis

__all__ = ["Accuracies", "ContextReading", "Diagnosis", "GroupAccuracy", "diagnose"]

FloatArray = NDArray[np.float64]


def diagnose(features: Any, labels: Any, contexts: Any = None, *, predictions: Any = None, seed: int = 0) -> Diagnosis:
    """Measure how features hang together, and what that has to do with classes and contexts.

    Every feature is predicted from all the others by ridge regression, on samples left out of the fit; that is a linear
    g, in closed form, so 2048 features take seconds and nothing is trained. Use samples that the model was not trained
    on.

    Args:
        features: What enters the last layer, for instance by :func:`pfdl.attach`: an array or tensor of shape (n, p).
        labels: The class of each sample, shape (n,).
        contexts: The context of each sample, shape (n,), if known.
        predictions: The class that the model gives to each sample, shape (n,), if known.
        seed: Of the folds of the probe that reads the contexts.

    Returns:
        What was found.

    Raises:
        ValueError: If shapes do not agree, a value is not finite, or there are fewer than 3 samples or 2 features.

    Example:
        >>> import numpy as np, pfdl
        >>> scene = np.random.default_rng(0).normal(size=200)
        >>> noise = np.random.default_rng(1).normal(size=(200, 4))
        >>> features = noise + np.outer(scene, [3, 3, 3, 0])  # three features show the scene, one does not
        >>> found = pfdl.diagnose(features, labels=np.arange(200) % 2)
        >>> found.r2 > 0.5
        array([ True,  True,  True, False])
        >>> found.clusters
        array([0, 0, 0, 1])
    """
    u = _matrix(features)
    names = _column("labels", labels, len(u))
    where = None if contexts is None else _column("contexts", contexts, len(u))
    label_numbers = np.unique(names, return_inverse=True)[1].astype(np.intp)
    marginal = predict_left_out(u)
    within = predict_left_out(u, label_numbers)
    correlation = marginal.observed.T @ marginal.observed / len(u)
    clusters, order = cluster_features(correlation, marginal.varies)
    length = np.linalg.norm(marginal.observed, axis=1)
    reading = None
    if where is not None:
        context_numbers = np.unique(where, return_inverse=True)[1].astype(np.intp)
        reading = read_context(marginal.observed, marginal.predicted, label_numbers, context_numbers, seed)
    accuracies = None
    if predictions is not None:
        right = _column("predictions", predictions, len(u)) == names
        accuracies = measure_accuracy(right, names, where)
    return Diagnosis(
        r2=marginal.r2,
        r2_within_class=within.r2,
        ranking=np.argsort(-marginal.r2, kind="stable"),  # NaN comes last
        correlation=_spread(correlation, marginal.varies),
        remaining_correlation=_spread(marginal.partial, marginal.varies),
        clusters=clusters,
        order=order,
        correlated_part=np.linalg.norm(marginal.predicted, axis=1) / np.where(length > 0, length, 1.0),
        context_reading=reading,
        accuracies=accuracies,
        ridge=marginal.ridge,
        ridge_within_class=within.ridge,
    )


def _matrix(features: Any) -> FloatArray:
    u = _array(features)
    if u.ndim != 2:
        raise ValueError(f"features have shape {u.shape}; give (samples, features).")
    if u.shape[0] < 3 or u.shape[1] < 2:
        raise ValueError(f"features have shape {u.shape}; at least 3 samples and 2 features are needed.")
    if u.dtype.kind not in "fiub":
        raise ValueError(f"features have the type {u.dtype}; give numbers.")
    u = u.astype(np.float64)
    if not np.isfinite(u).all():
        row, column = np.argwhere(~np.isfinite(u))[0]
        raise ValueError(f"features[{row}, {column}] is {u[row, column]}; all values must be finite.")
    return u


def _column(name: str, values: Any, samples: int) -> NDArray[Any]:
    column = _array(values)
    if column.shape != (samples,):
        raise ValueError(f"{name} have shape {column.shape}, but there are {samples} samples; give one for each.")
    if column.dtype.kind == "f" and not np.array_equal(column, np.round(column)):
        raise ValueError(f"{name} hold numbers such as {column[column != np.round(column)][0]}; give names or classes.")
    return column


def _array(values: Any) -> NDArray[Any]:
    detached = values.detach().cpu() if hasattr(values, "detach") else values
    array: NDArray[Any] = np.asarray(
        detached.float() if str(getattr(detached, "dtype", "")) == "torch.bfloat16" else detached
    )
    return array


def _spread(matrix: FloatArray, varies: NDArray[np.bool_]) -> FloatArray:
    full = np.full((len(varies), len(varies)), np.nan)
    full[np.ix_(varies, varies)] = matrix
    return full
