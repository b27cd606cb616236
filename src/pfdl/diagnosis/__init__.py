"""Does a model rely on the context? Arrays in, a verdict out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from pfdl.contexts._arrays import as_array, as_classes
from pfdl.contexts.groups import Mixture, count_groups, measure_accuracy
from pfdl.contexts.ridge import predict_left_out
from pfdl.diagnosis.reliance import (
    compare_reliance,
    goes_together,
    measure_reliance,
    usual_contexts_of,
)
from pfdl.diagnosis.result import BALANCED, Diagnosis, Gap
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
    features: Any,
    labels: Any,
    contexts: Any = None,
    *,
    predictions: Any = None,
    training: Mixture | None = None,
) -> Diagnosis:
    """Say whether a model relies on the context, and how far its features predict each other.

    The answer comes from the predictions: is a class recognised worse outside the context that goes
    with it in training? In addition, every feature is predicted from all the others by ridge
    regression, on samples left out of the fit; that is a linear g, in closed form, so 2048 features
    take seconds and nothing is trained. Use samples that the model was not trained on.

    Args:
        features: What enters the last layer, for instance by :func:`pfdl.attach`: an array or
            tensor of shape (n, p).
        labels: The class of each sample, shape (n,).
        contexts: The context of each sample, shape (n,), if known; else for instance by
            :func:`pfdl.infer_contexts`.
        predictions: The class that the model gives to each sample, shape (n,), if known.
        training: Number of training samples of each class in each context, by (class, context), as
            :func:`pfdl.diagnosis.count_groups` counts them. By default these samples are taken to
            be mixed as the training samples were, provided that classes and contexts go together in
            them.

    Returns:
        What was found.

    Raises:
        ValueError: If shapes do not agree, a value is not finite, or there are fewer than 3 samples
            or 2 features.

    Example:
        >>> import numpy as np, pfdl
        >>> rng = np.random.default_rng(0)
        >>> labels, contexts = rng.integers(2, size=(2, 400))
        >>> features = rng.normal(size=(400, 4)) + np.outer(
        ...     contexts, [3, 3, 3, 0]
        ... )  # three of four show the context
        >>> found = pfdl.diagnose(
        ...     features,
        ...     labels,
        ...     contexts,
        ...     predictions=contexts,  # a model that looks at nothing but the context
        ...     training={(0, 0): 90, (0, 1): 10, (1, 0): 10, (1, 1): 90},
        ... )
        >>> found.answer, found.r2 > 0.4  # the fourth is not predictable from the others
        ('yes', array([ True,  True,  True, False]))
    """
    u = check_array(
        as_array(features),
        dtype=np.float64,
        ensure_min_samples=3,
        ensure_min_features=2,
        input_name="features",
    )
    names = _column("labels", labels, len(u))
    where = None if contexts is None else _column("contexts", contexts, len(u))
    accuracies = reliance = shift = None
    unanswered = "no predictions are given" if predictions is None else "no contexts are known"
    if predictions is not None:
        answers = as_classes(predictions, names)
        accuracies = measure_accuracy(answers == names, names, where)
        if where is not None:
            counts = count_groups(names, where) if training is None else training
            if training is None and not goes_together(counts):
                unanswered = (
                    "classes and contexts do not go together in these images, nor is it known how"
                    " in training"
                )
            else:
                usual = usual_contexts_of(counts)
                reliance = measure_reliance(names, where, answers, usual)
                unanswered = (
                    "all images, or none, show their class in the context that is usual for it in"
                    " training"
                )
                unanswered = unanswered if usual else BALANCED
                if set(accuracies.by_label) & {label for label, _ in counts}:
                    shift = accuracy_under_shift(accuracies.groups, counts)
    return Diagnosis(
        accuracies=accuracies,
        reliance=reliance,
        shift=shift,
        unanswered="" if reliance is not None else unanswered,
        r2=predict_left_out(u).r2,
        r2_within_class=predict_left_out(
            u, np.unique(names, return_inverse=True)[1].astype(np.intp)
        ).r2,
    )


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
