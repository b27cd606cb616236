"""Accuracy by class, by context and by group (one class in one context): the one place where it is
computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfdl.contexts._arrays import group_table

Mixture = Mapping[tuple[Any, Any], float]
"""How many images, or which share of them, each group has: keys are (label, context)."""


@dataclass(frozen=True)
class GroupAccuracy:
    """The samples of one class in one context, and the share of them that is recognised."""

    label: Any
    context: Any
    accuracy: float
    samples: int

    @property
    def name(self) -> str:
        """Return what the group is called: ``cow in grass``; numbers are explained, ``class 0 in
        context 1``.

        Example:
            >>> GroupAccuracy("0", "1", 0.5, 10).name
            'class 0 in context 1'
        """
        label = name_class(self.label)
        return label if str(self.context) == "" else f"{label} in {name_context(self.context)}"

    @property
    def variance(self) -> float:
        """Return the squared standard error of the accuracy.

        It is counted with one more right and one more wrong answer, so that ten right ones of ten
        are not taken for certainty.
        """
        count = self.samples + 2
        share = (self.accuracy * self.samples + 1) / count
        return share * (1 - share) / count


@dataclass(frozen=True)
class Accuracies:
    """Shares of samples whose class is recognised, from 0 to 1.

    Attributes:
        overall: Of all samples, each counted once.
        by_label: For each class.
        by_context: For each context; empty if none are known.
        groups: For each class in each context, in the order of their names; without contexts for
            each class, in "". Groups with too few samples may have been left out.
        worst_group: The one with the lowest accuracy; of equal ones, the one with the most samples.
    """

    overall: float
    by_label: dict[Any, float]
    by_context: dict[Any, float]
    groups: tuple[GroupAccuracy, ...]
    worst_group: GroupAccuracy

    @property
    def average_over_groups(self) -> float:
        """Return the mean of the groups' accuracies: every group counts the same, however few
        samples it has.
        """
        return float(np.mean([group.accuracy for group in self.groups]))

    @property
    def worst_then_average(self) -> tuple[float, float]:
        """Return what models are ordered by if their worst group matters: it, then the average over
        groups.

        The worst of small groups is often at 0 for all of them.
        """
        return self.worst_group.accuracy, self.average_over_groups

    def average_in(self, mixture: Mixture) -> float:
        """Return the accuracy to expect on samples whose groups have other proportions.

        Args:
            mixture: The proportions, for instance those of the training set.

        Returns:
            The weighted mean of the groups' accuracies; NaN if a group of the mixture has not been
            tested.
        """
        tested = {(group.label, group.context): group.accuracy for group in self.groups}
        if not mixture or any(key not in tested for key, share in mixture.items() if share):
            return float("nan")
        total = sum(mixture.values())
        return float(sum(share * tested[key] for key, share in mixture.items() if share) / total)


def count_groups(
    labels: NDArray[Any], contexts: NDArray[Any] | None
) -> dict[tuple[Any, Any], float]:
    """Count the samples of each group.

    Example:
        >>> import numpy as np
        >>> count_groups(np.array(["cow", "cow", "camel"]), np.array(["grass", "sand", "sand"]))
        {('camel', 'sand'): 1.0, ('cow', 'grass'): 1.0, ('cow', 'sand'): 1.0}
    """
    label_names, y = np.unique(labels, return_inverse=True)
    context_names, c = np.unique(_everywhere(labels, contexts), return_inverse=True)
    table = group_table(y, c) if len(labels) else np.zeros((0, 0))
    counts = {}
    for row, label in zip(table, label_names.tolist(), strict=True):
        for count, context in zip(row, context_names.tolist(), strict=True):
            if count:
                counts[label, context] = float(count)
    return counts


def measure_accuracy(
    right: NDArray[np.bool_],
    labels: NDArray[Any],
    contexts: NDArray[Any] | None,
    *,
    min_samples: int = 1,
) -> Accuracies:
    """Measure accuracy by class, by context and by both; without contexts the groups are the
    classes.

    Args:
        right: Whether each sample was recognised, shape (n,).
        labels: The class of each sample, shape (n,).
        contexts: The context of each sample, shape (n,), if known.
        min_samples: Groups with fewer samples are left out of ``groups``, unless all are that
            small.

    Returns:
        The accuracies.

    Example:
        >>> import numpy as np
        >>> labels, contexts = (
        ...     np.array(["cow", "cow", "camel"]),
        ...     np.array(["grass", "sand", "sand"]),
        ... )
        >>> found = measure_accuracy(np.array([True, False, True]), labels, contexts)
        >>> found.by_context, found.worst_group.label
        ({'grass': 1.0, 'sand': 0.5}, 'cow')
    """
    where = _everywhere(labels, contexts)
    hits = count_groups(labels[right], where[right])
    groups = tuple(
        GroupAccuracy(label, context, hits.get((label, context), 0.0) / count, int(count))
        for (label, context), count in count_groups(labels, where).items()
    )
    least = min(min_samples, max(group.samples for group in groups))
    large = tuple(group for group in groups if group.samples >= least)
    return Accuracies(
        overall=float(right.mean()),
        by_label={name: float(right[labels == name].mean()) for name in np.unique(labels).tolist()},
        by_context={
            name: float(right[where == name].mean())
            for name in np.unique(where).tolist()
            if contexts is not None
        },
        groups=large,
        worst_group=min(large, key=lambda group: (group.accuracy, -group.samples)),
    )


def _everywhere(labels: NDArray[Any], contexts: NDArray[Any] | None) -> NDArray[Any]:
    return np.full(len(labels), "") if contexts is None else contexts


def name_class(label: Any) -> str:
    """Return what a class is called in a sentence; a bare number would say nothing there."""
    return f"class {label}" if _is_number(label) else str(label)


def name_context(context: Any) -> str:
    """Return what a context is called in a sentence; a bare number would say nothing there."""
    return f"context {context}" if _is_number(context) else str(context)


def _is_number(name: Any) -> bool:
    return str(name).lstrip("-").isdecimal()
