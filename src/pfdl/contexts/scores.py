"""Scores of a classifier beside accuracy, by torchmetrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from pfdl.contexts._arrays import as_array, as_equally_many
from pfdl.contexts.groups import measure_accuracy

CALIBRATION_BINS = 15


@dataclass(frozen=True)
class Scores:
    """Scores from 0 to 1.

    Attributes:
        balanced_accuracy: Mean over the classes of the share of their samples that is recognised.
        macro_f1: Mean over the classes of the harmonic mean of precision and recall.
        auroc: Mean over the classes of the area under the ROC curve, each against the rest; NaN if there is one only.
        calibration_error: Expected calibration error (Guo et al., 2017): the mean distance of confidence and accuracy
            over 15 bins of confidence, weighted by their sizes.
        worst_group_precision: Of the samples in one context that are taken for one class, the share that is of that
            class; the smallest such share. Without contexts, over the classes.
    """

    balanced_accuracy: float
    macro_f1: float
    auroc: float
    calibration_error: float
    worst_group_precision: float


def measure_scores(probabilities: Any, labels: Any, contexts: Any = None) -> Scores:
    """Measure how good predicted probabilities are, beside accuracy (:func:`pfdl.contexts.group_accuracy`).

    Args:
        probabilities: Of all classes, shape (n, classes).
        labels: The classes as numbers from 0, shape (n,). Classes without samples do not count in the means.
        contexts: The context of each sample, shape (n,), if known.

    Returns:
        The scores.

    Raises:
        ValueError: If the shapes do not fit, or the probabilities are not finite.

    Example:
        >>> probabilities = [[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.7, 0.3]]
        >>> scores = measure_scores(probabilities, [0, 0, 1, 1], ["sea", "snow", "sea", "snow"])
        >>> scores.balanced_accuracy, scores.auroc, scores.worst_group_precision
        (0.75, 1.0, 0.5)
    """
    from torchmetrics.functional import classification

    given = torch.as_tensor(as_array(probabilities)).float()
    y = torch.as_tensor(as_array(labels)).long()
    fitting = given.ndim == 2 and len(y) > 0 and y.shape == given.shape[:1]
    if not fitting or not 0 <= int(y.min()) <= int(y.max()) < given.shape[1]:
        raise ValueError(
            f"probabilities have shape {tuple(given.shape)} and labels {tuple(y.shape)}; give (n, classes) and the "
            "number of one of these classes for each sample."
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
        areas = [classification.binary_auroc(given[:, one], (y == one).long()) for one in torch.nonzero(there)[:, 0]]
        auroc = float(torch.stack(areas).mean())
    _, where = as_equally_many(labels=y, contexts=torch.zeros_like(y) if contexts is None else contexts)
    precision = measure_accuracy(
        (predicted == y).numpy(), predicted.numpy(), where
    )  # groups by what samples are taken for
    return Scores(
        balanced_accuracy=float(recall[there].mean()),
        macro_f1=float(f1[there].mean()),
        auroc=auroc,
        calibration_error=float(classification.multiclass_calibration_error(given, y, classes, CALIBRATION_BINS, "l1")),
        worst_group_precision=precision.worst_group.accuracy,
    )
