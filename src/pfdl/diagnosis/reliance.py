"""Measure whether a model relies on the context, from its answers alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pfdl.contexts._arrays import FloatArray
from pfdl.contexts.confirmation import CHANCE, cramers_v
from pfdl.contexts.groups import (
    GroupAccuracy,
    Mixture,
    count_groups,
    measure_accuracy,
    name_class,
    name_context,
)
from pfdl.diagnosis.verdict import ClassReliance, Comparison, ContextReliance


def usual_contexts_of(training: Mixture) -> dict[Any, Any]:
    """Return the context that goes with each class: the one that is more frequent in it than
    elsewhere.

    A class that has all its contexts equally often, and no more often than elsewhere, has none.

    Args:
        training: Number of training images of every group.

    Example:
        >>> usual_contexts_of(
        ...     {
        ...         ("cow", "grass"): 9,
        ...         ("cow", "sand"): 1,
        ...         ("camel", "grass"): 5,
        ...         ("camel", "sand"): 5,
        ...     }
        ... )
        {'camel': 'sand', 'cow': 'grass'}
    """
    per_label: dict[Any, float] = defaultdict(float)
    per_context: dict[Any, float] = defaultdict(float)
    for (label, context), count in training.items():
        per_label[label] += count
        per_context[context] += count
    total = sum(training.values())

    def excess(label: Any, context: Any) -> tuple[float, float, str]:
        share = training[label, context] / per_label[label] - per_context[context] / total
        return round(share, 9), training[label, context], str(context)

    usual = {}
    for label in sorted(name for name, count in per_label.items() if count):
        contexts = [context for name, context in training if name == label]
        if len(contexts) == 1 or len({excess(label, context)[:2] for context in contexts}) > 1:
            usual[label] = max(contexts, key=lambda context: excess(label, context))
    return usual


def goes_together(mixture: Mixture) -> bool:
    """Return whether classes and contexts are associated: Cramér's V of at least 0.1, beyond chance
    (p < 0.001).
    """
    labels, contexts = ({key[part] for key in mixture} for part in (0, 1))
    table = np.array(
        [[mixture.get((label, context), 0.0) for context in contexts] for label in labels]
    )
    strength, chance = cramers_v(table.reshape(len(labels), len(contexts)))
    return strength >= 0.1 and chance < CHANCE


def describe_readings(
    labels: NDArray[Any], contexts: NDArray[Any], predictions: NDArray[Any]
) -> str:
    """Say what the answers would show if training was mixed as these images are, and if it was
    mixed the other way round: the end of a sentence.
    """
    counts = count_groups(labels, contexts)
    right = predictions == labels
    said = ""
    reading = measure_reliance(labels, contexts, predictions, usual_contexts_of(counts))
    if reading is not None and goes_together(counts):
        here, there = f"{100 * reading.in_usual:.0f} %", f"{100 * reading.elsewhere:.0f} %"
        said = (
            f". If training was mixed as these images are, {here} are right in a class's usual"
            f" context and {there} elsewhere; if it was mixed the other way round, {there} and"
            f" {here}"
        )
    spreads = sorted(_spreads(measure_accuracy(right, labels, contexts).groups), reverse=True)
    shown = ", ".join(words for _, words in spreads[:3])
    return f"{said}. By class: {shown}" if shown else said


def _spreads(groups: Sequence[GroupAccuracy]) -> Iterator[tuple[float, str]]:
    """Yield how far apart the accuracies of each class are, and the best and worst in words."""
    for label in dict.fromkeys(group.label for group in groups):
        own = [group for group in groups if group.label == label]
        best = max(own, key=lambda group: group.accuracy)
        worst = min(own, key=lambda group: group.accuracy)
        if best is not worst:
            words = " and ".join(
                f"{100 * group.accuracy:.0f} % of {group.samples} in {name_context(group.context)}"
                for group in (best, worst)
            )
            yield best.accuracy - worst.accuracy, f"{name_class(label)} {words}"


def measure_reliance(
    labels: NDArray[Any],
    contexts: NDArray[Any],
    predictions: NDArray[Any],
    usual: Mapping[Any, Any],
) -> ContextReliance | None:
    """Compare a model's answers in the usual context of each class and elsewhere.

    Args:
        labels: The class of each image, shape (n,).
        contexts: The context of each image, shape (n,).
        predictions: The answer to each image, shape (n,).
        usual: The usual context of every class, as :func:`usual_contexts_of` gives.

    Returns:
        What was found; None if all images are in usual contexts, or none is.
    """
    right = predictions == labels
    at_home = np.array(
        [usual.get(label) == where for label, where in zip(labels, contexts, strict=True)]
    )
    # A class without a usual context is at home nowhere, and not elsewhere either
    some = np.isin(labels, list(usual))
    if at_home[some].all() or not at_home.any():
        return None
    sides = measure_accuracy(right[some], labels[some], at_home[some])
    home, elsewhere = (
        GroupAccuracy("", "", sides.by_context[side], int(np.sum(at_home[some] == side)))
        for side in (True, False)
    )
    groups = measure_accuracy(right, labels, contexts).groups
    row, separable = _contrast(groups, usual)
    effect = effect_error = float("nan")
    if row is not None:
        effect = float(row @ [group.accuracy for group in groups])
        effect_error = float(np.sqrt(row**2 @ [group.variance for group in groups]))
    by_class = [_by_class(label, usual[label], sides.groups) for label in sides.by_label]
    return ContextReliance(
        in_usual=home.accuracy,
        elsewhere=elsewhere.accuracy,
        standard_error=float(np.sqrt(home.variance + elsewhere.variance)),
        effect=effect,
        effect_error=effect_error,
        separable=separable,
        by_class=tuple(sorted(by_class, key=_least_loss_last)),
        samples_elsewhere=elsewhere.samples,
    )


def _by_class(label: Any, usual: Any, sides: Sequence[GroupAccuracy]) -> ClassReliance:
    """Return the accuracies of one class; the contexts of these groups are whether it is usual."""
    found = {bool(group.context): group for group in sides if group.label == label}
    nothing = GroupAccuracy(label, "", float("nan"), 0)
    home, elsewhere = found.get(True, nothing), found.get(False, nothing)
    return ClassReliance(label, usual, home.accuracy, elsewhere.accuracy, elsewhere.samples)


def _least_loss_last(one: ClassReliance) -> float:
    return np.inf if np.isnan(one.loss) else -one.loss


def compare_reliance(
    labels: NDArray[Any],
    contexts: NDArray[Any],
    first: NDArray[Any],
    second: NDArray[Any],
    usual: Mapping[Any, Any],
) -> Comparison:
    """Compare how much two models rely on the context, on the same images.

    Args:
        labels: The class of each image, shape (n,).
        contexts: The context of each image, shape (n,).
        first: The first model's answers, shape (n,).
        second: The second model's answers, shape (n,).
        usual: The usual context of every class.

    Returns:
        The difference, with the standard error of the paired difference.
    """
    better = (first == labels).astype(float) - (second == labels).astype(float)
    groups = measure_accuracy(first == labels, labels, contexts).groups
    row, _ = _contrast(groups, usual)
    if row is None:
        return Comparison(float("nan"), float("nan"))
    difference = variance = 0.0
    for weight, group in zip(row, groups, strict=True):
        cell = better[(labels == group.label) & (contexts == group.context)]
        difference += weight * float(cell.mean())
        # One more disagreement in favour of either, so that no disagreement in ten is not taken for
        # certainty.
        cell = np.append(cell, [1.0, -1.0])
        variance += weight**2 * float(cell.var()) / len(cell)
    return Comparison(difference, float(np.sqrt(variance)))


class _Contrast(NamedTuple):
    """The weights of the groups' accuracies whose sum is the effect of the usual context.

    Attributes:
        weights: One for each group; None where there is no effect to speak of.
        is_adjusted: Whether hard classes and contexts are allowed for.
    """

    weights: FloatArray | None
    is_adjusted: bool


def _contrast(groups: Sequence[GroupAccuracy], usual: Mapping[Any, Any]) -> _Contrast:
    """Return the row of the least-squares solution of accuracy = class + context + effect ·
    at_home, with every sample counted once; or the plain difference, where that is all there is.
    """
    at_home = np.array([usual.get(group.label) == group.context for group in groups])
    counts = np.array([group.samples for group in groups], dtype=np.float64)
    root = np.sqrt(counts)
    home = root * at_home
    nuisance = root[:, None] * np.hstack(
        [_indicators([group.label for group in groups]), _indicators([g.context for g in groups])]
    )
    # Frisch-Waugh: what class and context leave over of being at home
    explained = nuisance @ np.linalg.lstsq(nuisance, home, rcond=None)[0]
    rest = home - explained
    size = float(rest @ rest)
    if at_home.any() and size >= 1e-9 * float(home @ home):
        return _Contrast(rest * root / size, True)
    return _Contrast(_plain_difference(groups, usual, at_home, counts), False)


def _plain_difference(
    groups: Sequence[GroupAccuracy],
    usual: Mapping[Any, Any],
    at_home: NDArray[np.bool_],
    counts: FloatArray,
) -> FloatArray | None:
    """Return the weights of accuracy in usual contexts minus accuracy elsewhere; None if all
    classes share one usual context, or all images are on one side.
    """
    has_usual = np.array([group.label in usual for group in groups])
    away = has_usual & ~at_home
    distinct = {usual[group.label] for group in groups if group.label in usual}
    if len(distinct) < 2 or not away.any() or not at_home.any():
        return None
    in_usual = np.where(at_home, counts, 0.0)
    elsewhere = np.where(away, counts, 0.0)
    return np.asarray(in_usual / in_usual.sum() - elsewhere / elsewhere.sum())


def _indicators(names: Sequence[Any]) -> FloatArray:
    """Return a column for each name, 1 where it stands."""
    numbers = np.unique([str(name) for name in names], return_inverse=True)[1]
    return np.eye(numbers.max() + 1)[numbers]
