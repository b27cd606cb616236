"""How strongly to balance groups, chosen on held-out samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pfdl.contexts.groups import Accuracies
from pfdl.contexts.quality import group_accuracy

LEAST_GROUP = 10
"""Groups with fewer held-out samples are pooled: the accuracy of each would be mostly chance."""


def choose_balance(predictions: Mapping[float, Any], labels: Any, contexts: Any) -> float:
    """Choose how strongly to balance groups by the accuracy on held-out samples, averaged over groups.

    Train your model once for each strength to choose from, with ``context_sampler(…, power=α)`` and α of 0, 0.5 and 1,
    say, and predict samples that none of them was trained on. The labels of these samples may be as wrong as those of
    the training set: a model that has learnt the wrong labels of rare groups does worse on them, too.

    Groups count equally in the average. Those with fewer than ten held-out samples are pooled: their samples count the
    same, and together as much as that many groups.

    Args:
        predictions: For each strength the predicted classes of the held-out samples, shape (n,), in the numbers or
            names of ``labels``, or scores of all classes, shape (n, classes).
        labels: The classes of the held-out samples, shape (n,).
        contexts: Their contexts, shape (n,), known, or inferred together with those of the training set.

    Returns:
        The strength with the best average; of equal ones, and where all samples are in one context, the mildest.

    Raises:
        ValueError: If there is no strength to choose from, or the shapes do not fit.

    Example:
        >>> labels, contexts = [0, 0, 0, 1, 1, 1], ["snow", "snow", "sea", "sea", "sea", "snow"]
        >>> choose_balance({0.0: [0, 0, 1, 1, 1, 0], 1.0: [0, 0, 0, 1, 0, 1]}, labels, contexts)
        1.0
    """
    if not predictions:
        raise ValueError("there are no predictions; give those of at least one strength of balancing.")
    found = {power: group_accuracy(given, labels, contexts) for power, given in sorted(predictions.items())}
    if len(found[min(found)].by_context) < 2:
        return min(found)
    return max(found, key=lambda power: _pooled_average(found[power]))


def _pooled_average(found: Accuracies) -> float:
    """Return the average over groups, with one accuracy for all small groups together."""
    large = [group.accuracy for group in found.groups if group.samples >= LEAST_GROUP]
    small = [group for group in found.groups if group.samples < LEAST_GROUP]
    right = sum(group.accuracy * group.samples for group in small)
    pooled = right / max(sum(group.samples for group in small), 1)
    return (sum(large) + len(small) * pooled) / len(found.groups)
