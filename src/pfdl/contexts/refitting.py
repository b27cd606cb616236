"""Refit the last layer of a trained network on data in which all groups are equally frequent
(DFR).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl._internal.validation import check_count
from pfdl.contexts._arrays import IndexArray, as_array, as_numbers
from pfdl.contexts.groups import GroupAccuracy, count_groups, name_class, name_context
from pfdl.contexts.quality import group_accuracy

STRENGTHS = (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01)
"""The inverse strengths of the l1 penalty (C in scikit-learn) among which DFR's authors choose."""

SMALLEST = 4
"""Smaller groups are left out: they would leave next to nothing of the others."""

ITERATIONS = 500

_REMEDY = "Give more samples, or balance the groups in training: pfdl train … --sampler groups."


@dataclass(frozen=True, eq=False)
class Readout:
    """A last layer.

    Attributes:
        weight: Shape (classes, features).
        bias: Shape (classes,).
        strength: The inverse strength of the l1 penalty that was chosen.
        held_out_worst: Accuracy in the worst group of the half that chose it.
        samples_per_group: How many of each group every fit saw.
        left_out: The groups that were too small and left out, in words.
    """

    weight: Tensor
    bias: Tensor
    strength: float
    held_out_worst: float
    samples_per_group: int
    left_out: tuple[str, ...]


def refit_readout(
    features: Any,
    labels: Any,
    contexts: Any,
    *,
    num_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    context_names: Sequence[str] | None = None,
    repetitions: int = 20,
    seed: int = 0,
) -> Readout:
    """Fit a linear layer on features so that all groups count equally.

    This is Deep Feature Reweighting (DFR; Kirichenko et al., 2023). A network trained by plain risk
    minimisation often has learnt what it needs and uses it badly in its last layer. The new layer
    is a logistic regression with an l1 penalty, fitted on as many samples of every group (one class
    in one context) as the smallest has, and averaged over several draws. Its strength is chosen on
    one half of the samples, by the worst group, with a fit on the other half.

    The contexts need to be known for these samples alone: with those of a validation set this is
    the authors' DFR on validation data, and the training set needs none. Pass the features, labels
    and contexts of that set.

    What differs from the authors' code: features are standardised over each balanced draw, not over
    all training samples; the halves are drawn within every group, not over all samples; several
    classes are one softmax, not one against the rest each; the intercept is free, where liblinear
    penalises it; groups of fewer than 4 samples are left out; and the default is 20 draws, as
    theirs on validation data. Accuracies agree within their noise.

    Args:
        features: What enters the layer, shape (n, p); best of samples that the network was not
            trained on, such as the validation set.
        labels: The classes as numbers, shape (n,).
        contexts: The context of each sample, known or inferred, shape (n,).
        num_classes: How many classes the layer has; by default those among the labels.
        class_names: What to call the classes where groups are named; by default their numbers.
        context_names: What to call the contexts.
        repetitions: Draws to average over.
        seed: Seed of the draws.

    Returns:
        The layer, for features as they were given.

    Raises:
        ValueError: If the shapes do not fit, there is one context only, too few groups are large
            enough, or a context keeps samples of one class only: a layer fitted on these would
            learn that this context means this class.
    """
    check_count("repetitions", repetitions, 1)
    x = torch.as_tensor(as_array(features)).double()
    y = torch.as_tensor(as_array(labels)).long()
    context = as_numbers("contexts", contexts)
    if x.ndim != 2 or not len(x) == len(y) == len(context):
        raise ValueError(
            f"features have shape {tuple(x.shape)}, labels {tuple(y.shape)} and contexts"
            f" {context.shape}; give (n, p), (n,) and (n,)."
        )
    if not bool(torch.isfinite(x).all()):
        raise ValueError("features have a NaN or an infinity among them; all must be finite.")
    classes = num_classes or int(y.max()) + 1
    groups, kept, left_out = large_groups(y.numpy(), context, class_names, context_names)
    x = x[kept]
    y = y[kept]
    context = context[kept]
    groups = np.unique(groups[kept], return_inverse=True)[1].astype(np.intp)
    chance = np.random.default_rng(seed)
    strength, worst = _choose(x, y, context, groups, classes, chance)
    fits = [_fit(x, y, _balanced(groups, chance), classes, strength) for _ in range(repetitions)]
    weight, bias = (torch.stack(parts).mean(0).float() for parts in zip(*fits, strict=True))
    return Readout(weight, bias, strength, worst, int(np.bincount(groups).min()), left_out)


class LargeGroups(NamedTuple):
    """The group of each sample, the samples of groups to refit on, and the other groups in
    words.
    """

    groups: IndexArray
    kept: IndexArray
    left_out: tuple[str, ...]


def large_groups(
    y: IndexArray,
    contexts: Any,
    class_names: Sequence[str] | None = None,
    context_names: Sequence[str] | None = None,
) -> LargeGroups:
    """Find the groups that are large enough to refit on; ValueError if these do not suffice."""
    context = as_numbers("contexts", contexts)
    if context.max() == 0:
        raise ValueError("all samples are in one context, so there is nothing to balance.")
    labels = y if class_names is None else np.array(class_names)[y]
    places = context if context_names is None else np.array(context_names)[context]
    small = [
        (*group, count) for group, count in count_groups(labels, places).items() if count < SMALLEST
    ]
    left_out = tuple(
        f"{GroupAccuracy(label, place, math.nan, 0).name} ({count:.0f})"
        for label, place, count in small
    )
    groups = y * (int(context.max()) + 1) + context
    kept = np.flatnonzero(np.bincount(groups)[groups] >= SMALLEST)
    classes = set(y.tolist())
    too_small = f" Too small: {', '.join(left_out)}." if left_out else ""
    if set(y[kept].tolist()) != classes or len(np.unique(groups[kept])) <= len(classes):
        raise ValueError(
            f"too few groups (one class in one context) have {SMALLEST} samples or more; refitting"
            f" needs one of every class, and one more.{too_small} {_REMEDY}"
        )
    for place in np.unique(places[kept]):
        (only, *others) = np.unique(labels[kept][places[kept] == place])
        if not others:
            raise ValueError(
                f"{name_context(place)} has {SMALLEST} samples or more of {name_class(only)} alone,"
                f" so the layer would learn that this context means this class.{too_small}"
                f" {_REMEDY}"
            )
    return LargeGroups(groups, kept, left_out)


def _choose(
    x: Tensor,
    y: Tensor,
    context: IndexArray,
    groups: IndexArray,
    classes: int,
    chance: np.random.Generator,
) -> tuple[float, float]:
    """Return the strength with the best worst group on one half of every group, and that group's
    accuracy.
    """
    first = np.zeros(len(groups), dtype=bool)
    for group in np.unique(groups):
        mine = chance.permutation(np.flatnonzero(groups == group))
        first[mine[: len(mine) // 2]] = True
    rows = np.flatnonzero(first)[_balanced(groups[first], chance)]
    fits = [_fit(x, y, rows, classes, strength) for strength in STRENGTHS]
    found = [
        group_accuracy(x[~first] @ weight.T + bias, y[~first], context[~first])
        for weight, bias in fits
    ]
    # The first of equal ones
    chosen = max(range(len(found)), key=lambda number: found[number].worst_then_average)
    return STRENGTHS[chosen], found[chosen].worst_group.accuracy


def _balanced(groups: IndexArray, chance: np.random.Generator) -> IndexArray:
    """Draw as many samples of every group as the smallest has."""
    size = int(np.bincount(groups)[np.unique(groups)].min())
    return np.concatenate(
        [
            chance.choice(np.flatnonzero(groups == group), size, replace=False)
            for group in np.unique(groups)
        ]
    )


def _fit(
    x: Tensor, y: Tensor, rows: IndexArray, classes: int, strength: float
) -> tuple[Tensor, Tensor]:
    """Fit on some samples, standardised over them; return weight and bias for features as they
    are.
    """
    some = x[rows]
    target = y[rows]
    mean = some.mean(0)
    size = (some - mean).square().mean(0).sqrt()
    # A constant feature says nothing
    size = torch.where(size > 1e-12 * size.max().clamp(min=1e-300), size, torch.inf)
    weight, bias = l1_logistic_regression((some - mean) / size, target, classes, strength)
    weight = weight / size
    return weight, bias - weight @ mean


def l1_logistic_regression(
    x: Tensor, y: Tensor, classes: int, strength: float, *, iterations: int = ITERATIONS
) -> tuple[Tensor, Tensor]:
    """Minimise ``strength`` × Σ cross-entropy + Σ|weight| by FISTA, as scikit-learn's C with an l1
    penalty.

    For several classes scikit-learn has this by SAGA alone, which takes seconds where this takes
    milliseconds, and asks for it in different words from version to version; skglm has it for two
    classes.

    Args:
        x: Standardised features, shape (n, p).
        y: Classes, shape (n,).
        classes: How many there are.
        strength: C.
        iterations: Most steps; it ends earlier when nothing changes any more.

    Returns:
        Weight, shape (classes, p), and bias, shape (classes,), which is not penalised.
    """
    n = len(x)
    with_one = torch.cat([x, x.new_ones(n, 1)], 1)
    # The Hessian of the mean cross-entropy is at most half the largest eigenvalue of the second
    # moments.
    step = 2.0 / float(torch.linalg.matrix_norm(with_one, 2).square() / n)
    threshold = step / (strength * n)
    target = F.one_hot(y, classes).to(x.dtype)
    current = ahead = x.new_zeros(classes, x.shape[1] + 1)
    momentum = 1.0
    for _ in range(iterations):
        gradient = ((ahead @ with_one.T).softmax(0) - target.T) @ with_one / n
        new = ahead - step * gradient
        new[:, :-1] = new[:, :-1].sign() * (new[:, :-1].abs() - threshold).clamp(min=0)
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = new + (momentum - 1) / following * (new - current)
        change = float((new - current).abs().max())
        current = new
        momentum = following
        if change <= 1e-7:
            break
    return current[:, :-1].clone(), current[:, -1].clone()
