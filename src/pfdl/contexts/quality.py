"""How good inferred contexts are, and how good a model is: in the groups that they make, and by
other scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pfdl._internal.validation import check_count
from pfdl.contexts._arrays import as_array, as_classes, as_equally_many, group_table
from pfdl.contexts.groups import Accuracies, measure_accuracy

CALIBRATION_BINS = 15


@dataclass(frozen=True)
class GroupReport:
    """How well inferred contexts match the true ones.

    Attributes:
        ari: Adjusted Rand index within classes, the mean over classes that have more than one true
            context: 1 if the groups are the same, 0 if no better than chance. Over all samples at
            once it would be near 1 for finding nothing, wherever the context goes with the class.
        accuracy: Share of samples whose inferred context is the true one, after matching the two
            one to one.
        worst_group_accuracy: The smallest such share in any true group, one class in one context.
        minority_precision: Of the samples outside their class's most frequent inferred context, the
            share that is outside its most frequent true context; NaN where there are none.
        minority_recall: Of the samples outside their class's most frequent true context, the share
            that is outside its most frequent inferred context; NaN where there are none.
    """

    ari: float
    accuracy: float
    worst_group_accuracy: float
    minority_precision: float
    minority_recall: float


def group_report(labels: Any, contexts: Any, true_contexts: Any) -> GroupReport:
    """Compare inferred contexts with the true ones.

    Args:
        labels: The classes, shape (n,).
        contexts: The inferred contexts, shape (n,).
        true_contexts: The true contexts, shape (n,).

    Returns:
        The scores, each from 0 to 1 (``ari`` may fall slightly below 0).

    Raises:
        ValueError: If the shapes do not fit or there are no samples.

    Example:
        >>> group_report(
        ...     [0, 0, 0, 0, 1, 1, 1, 1], [5, 5, 5, 7, 7, 7, 7, 5], [0, 0, 0, 1, 1, 1, 1, 0]
        ... ).ari
        1.0
    """
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics import adjusted_rand_score

    y, found, true = as_equally_many(labels=labels, contexts=contexts, true_contexts=true_contexts)
    table = group_table(found, true)
    match = np.full(len(table), -1)
    rows, columns = linear_sum_assignment(-table)
    match[rows] = columns
    right = match[found] == true
    classes = [y == label for label in range(int(y.max()) + 1)]
    varied = [mine for mine in classes if len(np.unique(true[mine])) > 1]
    ari = (
        np.mean([adjusted_rand_score(true[mine], found[mine]) for mine in varied])
        if varied
        else np.nan
    )
    minority, guessed = (
        group_table(y, context).argmax(axis=1)[y] != context for context in (true, found)
    )
    both = float((minority & guessed).sum())
    return GroupReport(
        ari=float(ari),
        accuracy=float(right.mean()),
        worst_group_accuracy=measure_accuracy(right, y, true).worst_group.accuracy,
        minority_precision=float(both / guessed.sum()) if guessed.any() else float("nan"),
        minority_recall=float(both / minority.sum()) if minority.any() else float("nan"),
    )


def group_accuracy(
    predictions: Any, labels: Any, contexts: Any, *, min_samples: int = 1
) -> Accuracies:
    """Return the accuracy of predicted classes in every group, in the worst one and averaged in two
    ways.

    Args:
        predictions: The predicted classes, shape (n,), or scores of all classes, shape (n,
            classes).
        labels: The true classes, shape (n,), in the same numbers or names.
        contexts: The context of each sample, shape (n,), known or inferred.
        min_samples: Groups with fewer samples are left out of the worst group and of the average
            over groups, because the accuracy of a few samples is mostly chance. If all groups are
            that small, none is left out.

    Returns:
        The accuracies, from 0 to 1; ``worst_group.accuracy``, ``average_over_groups`` and
        ``overall`` are the usual three.

    Raises:
        ValueError: If the shapes do not fit or there are no samples.
    """
    check_count("min_samples", min_samples, 1)
    truth = as_array(labels)
    where = as_array(contexts)
    _, numbers = as_equally_many(labels=truth, contexts=where)
    given = as_classes(predictions, truth)
    where = where if where.ndim == 1 else numbers  # rows of a one-hot matrix
    return measure_accuracy(np.asarray(given == truth), truth, where, min_samples=min_samples)


def worst_group_accuracy(
    predictions: Any, labels: Any, contexts: Any, *, min_samples: int = 1
) -> float:
    """Return the accuracy in the worst group, one class in one context.

    On held-out samples of the *training* distribution, with inferred contexts, this chooses a
    stopping step or a setting without a look at any test sample.

    Args:
        predictions: The predicted classes, shape (n,), or scores of all classes, shape (n,
            classes).
        labels: The true classes, shape (n,).
        contexts: The context of each sample, shape (n,), known or inferred.
        min_samples: Groups with fewer samples are left out, unless all are that small.

    Returns:
        From 0 to 1.

    Example:
        >>> worst_group_accuracy(
        ...     [0, 0, 1, 1, 1, 1],
        ...     [0, 0, 0, 1, 1, 1],
        ...     ["sea", "sea", "snow", "snow", "snow", "sea"],
        ... )
        0.0
    """
    return group_accuracy(
        predictions, labels, contexts, min_samples=min_samples
    ).worst_group.accuracy


@dataclass(frozen=True)
class Scores:
    """Scores from 0 to 1.

    Attributes:
        balanced_accuracy: Mean over the classes of the share of their samples that is recognised.
        macro_f1: Mean over the classes of the harmonic mean of precision and recall.
        auroc: Mean over the classes of the area under the ROC curve, each against the rest; NaN if
            there is one only.
        calibration_error: Expected calibration error (Guo et al., 2017): the mean distance of
            confidence and accuracy over 15 bins of confidence, weighted by their sizes.
        worst_group_precision: Of the samples in one context that are taken for one class, the share
            that is of that class; the smallest such share. Without contexts, over the classes.
    """

    balanced_accuracy: float
    macro_f1: float
    auroc: float
    calibration_error: float
    worst_group_precision: float


def measure_scores(probabilities: Any, labels: Any, contexts: Any = None) -> Scores:
    """Measure how good predicted probabilities are, beside accuracy
    (:func:`pfdl.contexts.group_accuracy`).

    Args:
        probabilities: Predicted probability of each class, shape (n, classes).
        labels: The classes as numbers from 0, shape (n,). Classes without samples do not count in
            the means.
        contexts: The context of each sample, shape (n,), if known.

    Returns:
        The scores.

    Raises:
        ModuleNotFoundError: If torchmetrics is not installed.
        ValueError: If the shapes do not fit, or the probabilities are not finite.

    Example:
        >>> probabilities = [[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.7, 0.3]]
        >>> scores = measure_scores(probabilities, [0, 0, 1, 1], ["sea", "snow", "sea", "snow"])
        >>> scores.balanced_accuracy, scores.auroc, scores.worst_group_precision
        (0.75, 1.0, 0.5)
    """
    try:
        from torchmetrics.functional import classification
    except ImportError as error:
        raise ModuleNotFoundError(
            "measure_scores needs torchmetrics; the extra 'images' of pfdl brings it."
        ) from error
    given = torch.as_tensor(as_array(probabilities)).float()
    y = torch.as_tensor(as_array(labels)).long()
    fitting = given.ndim == 2 and len(y) > 0 and y.shape == given.shape[:1]
    if not fitting or not 0 <= int(y.min()) <= int(y.max()) < given.shape[1]:
        raise ValueError(
            f"probabilities have shape {tuple(given.shape)} and labels {tuple(y.shape)}; give (n,"
            " classes) and the number of one of these classes for each sample."
        )
    if not bool(torch.isfinite(given).all()):
        raise ValueError("probabilities have a NaN or an infinity among them; all must be finite.")
    classes = given.shape[1]
    predicted = given.argmax(1)
    there = torch.bincount(y, minlength=classes) > 0
    recall = classification.multiclass_recall(predicted, y, classes, average="none")
    f1 = classification.multiclass_f1_score(predicted, y, classes, average="none")
    auroc = float("nan")
    if int(there.sum()) > 1:
        areas = [
            classification.binary_auroc(given[:, one], (y == one).long())
            for one in torch.nonzero(there)[:, 0]
        ]
        auroc = float(torch.stack(areas).mean())
    _, where = as_equally_many(
        labels=y, contexts=torch.zeros_like(y) if contexts is None else contexts
    )
    taken_for = predicted.numpy()
    precision = measure_accuracy(taken_for == y.numpy(), taken_for, where)
    return Scores(
        balanced_accuracy=float(recall[there].mean()),
        macro_f1=float(f1[there].mean()),
        auroc=auroc,
        calibration_error=float(
            classification.multiclass_calibration_error(given, y, classes, CALIBRATION_BINS, "l1")
        ),
        worst_group_precision=precision.worst_group.accuracy,
    )
