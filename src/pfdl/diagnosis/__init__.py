"""Does a model rely on the context? Arrays in, a verdict out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from pfdl.contexts._arrays import as_array, as_classes
from pfdl.contexts.groups import Mixture, count_groups, measure_accuracy
from pfdl.contexts.ridge import predict_left_out
from pfdl.diagnosis.reliance import (
    compare_reliance,
    describe_readings,
    measure_reliance,
    usual_contexts_of,
)
from pfdl.diagnosis.result import BALANCED, ONE_SIDED, TRAINING_UNKNOWN, Diagnosis, Gap
from pfdl.diagnosis.shift import ShiftCurve, accuracy_under_shift
from pfdl.diagnosis.verdict import Comparison, ContextReliance

__all__ = [
    "Comparison",
    "ContextReliance",
    "Diagnosis",
    "Gap",
    "ShiftCurve",
    "accuracy_under_shift",
    "compare_reliance",
    "count_groups",
    "diagnose",
    "measure_accuracy",
    "measure_reliance",
    "usual_contexts_of",
]


def diagnose(
    features: Any = None,
    labels: Any = None,
    contexts: Any = None,
    *,
    predictions: Any = None,
    training: Mixture | None = None,
) -> Diagnosis:
    """Say whether a model relies on the context, and how far its features predict each other.

    The answer comes from the predictions: is a class recognised worse outside the context that goes
    with it in training? Use samples that the model was not trained on. Features are not needed for
    it; where they are given, every feature is predicted from all the others by ridge regression, on
    samples left out of the fit.

    Args:
        features: What enters the last layer, for instance by :func:`pfdl.attach`: an array or
            tensor of shape (n, p), if known.
        labels: The class of each sample, shape (n,).
        contexts: The context of each sample, shape (n,), if known. Do not give contexts that were
            inferred and not confirmed: the answer is no better than they are.
        predictions: The class that the model gives to each sample, shape (n,), if known.
        training: Number of training samples of each class in each context, by (class, context), as
            :func:`pfdl.diagnosis.count_groups` counts them. Without it nobody can say which context
            is usual for a class, and the answer is "cannot tell".

    Returns:
        What was found.

    Raises:
        ValueError: If shapes do not agree, a value is not finite, or there are fewer than 3 samples
            or 2 features.

    Example:
        >>> import numpy as np, pfdl
        >>> rng = np.random.default_rng(0)
        >>> labels, contexts = rng.integers(2, size=(2, 400))
        >>> found = pfdl.diagnose(
        ...     labels=labels,
        ...     contexts=contexts,
        ...     predictions=contexts,  # a model that looks at nothing but the context
        ...     training={(0, 0): 90, (0, 1): 10, (1, 0): 10, (1, 1): 90},
        ... )
        >>> found.answer
        'yes'
    """
    if labels is None:
        raise ValueError("there are no labels; give the class of each sample.")
    samples = len(as_array(labels))
    if not samples:
        raise ValueError("there are no samples; give some that the model was not trained on.")
    r2 = r2_within_class = np.empty(0)
    if features is not None:
        u = check_array(
            as_array(features),
            dtype=np.float64,
            ensure_min_samples=3,
            ensure_min_features=2,
            input_name="features",
        )
        samples = len(u)
    names = _column("labels", labels, samples)
    where = None if contexts is None else _column("contexts", contexts, samples)
    answers = None if predictions is None else as_classes(predictions, names)
    if features is not None:
        numbers = np.unique(names, return_inverse=True)[1].astype(np.intp)
        r2 = predict_left_out(u).r2
        r2_within_class = predict_left_out(u, numbers).r2
    if answers is None or where is None:
        unanswered = "no predictions are given" if answers is None else "no contexts are known"
        found = Diagnosis(None, None, None, unanswered, r2, r2_within_class)
    else:
        found = _judge(names, where, answers, training)
        found = replace(found, r2=r2, r2_within_class=r2_within_class)
    if answers is None:
        return found
    return replace(found, accuracies=measure_accuracy(answers == names, names, where))


def _judge(
    labels: NDArray[Any],
    contexts: NDArray[Any],
    answers: NDArray[Any],
    training: Mixture | None,
) -> Diagnosis:
    """Judge predictions by what is usual in training; where that is not known, give all readings
    and no answer.
    """
    if not training:
        readings = f"{TRAINING_UNKNOWN}{describe_readings(labels, contexts, answers)}"
        return Diagnosis(None, None, None, readings)
    usual = usual_contexts_of(training)
    if not usual:
        return Diagnosis(None, None, None, BALANCED)
    reliance = measure_reliance(labels, contexts, answers, usual)
    if reliance is None:
        return Diagnosis(None, None, None, ONE_SIDED)
    shift = None
    if set(labels.tolist()) & {label for label, _ in training}:
        groups = measure_accuracy(answers == labels, labels, contexts).groups
        shift = accuracy_under_shift(groups, training)
    return Diagnosis(None, reliance, shift, "")


def _column(name: str, values: Any, samples: int) -> NDArray[Any]:
    column = as_array(values)
    if column.shape != (samples,):
        raise ValueError(
            f"{name} have shape {column.shape}, but there are {samples} samples; give one for each."
        )
    if column.dtype.kind == "f" and not np.array_equal(column, np.round(column)):
        raise ValueError(
            f"{name} hold numbers such as {column[column != np.round(column)][0]}; give names or"
            " classes."
        )
    return column
