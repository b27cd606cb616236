"""The contexts of further samples, by those of samples whose contexts were found."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from pfdl.contexts._arrays import FloatArray, IndexArray
from pfdl.contexts.sources import DatasetFeatures, Describe, open_features

LEAST_AGREEMENT = 0.5
"""Contexts are recognised in further samples if samples that were left out of the fit are at least
halfway between chance and full agreement.
"""


class Assigned(NamedTuple):
    """Contexts of further samples.

    Attributes:
        contexts: Shape (n,).
        agreement: How well a fit to other samples recognises each group, on average over the
            groups: 0 as by chance, 1 fully.
    """

    contexts: IndexArray
    agreement: float

    @property
    def is_sound(self) -> bool:
        """Return whether the contexts can be recognised at all."""
        return self.agreement >= LEAST_AGREEMENT


def assign_contexts(
    data: Any,
    labels: Any,
    contexts: IndexArray,
    new: Any,
    new_labels: Any,
    *,
    describe: Describe | None = None,
    seed: int = 0,
) -> Assigned:
    """Recognise contexts in further samples, each among the contexts of its class.

    The groups (one class in one context) are told apart by linear discriminants whose covariance is
    shrunk, as if all of them were equally frequent: other samples may be mixed otherwise.

    Args:
        data: Samples whose contexts are known, as :func:`pfdl.contexts.find_contexts` takes them.
        labels: Their classes as numbers, shape (n,).
        contexts: Their contexts, shape (n,).
        new: The further samples.
        new_labels: Their classes as numbers.
        describe: From a batch of images to features.
        seed: Seed of the description of images, and of the halves.
    """
    known = open_features(data, labels, describe, seed)
    x = known.take(np.arange(len(known)))
    if isinstance(known, DatasetFeatures):  # as the known images were scaled
        describe = known.described_by
    further = open_features(new, new_labels, describe, seed)
    z = further.take(np.arange(len(further)))
    groups = known.labels * (int(contexts.max()) + 1) + contexts
    found = _recognise(x, groups, z, further.labels, int(contexts.max()) + 1)
    first = np.zeros(len(groups), dtype=bool)
    chance = np.random.default_rng(seed)
    for group in np.unique(groups):
        mine = chance.permutation(np.flatnonzero(groups == group))
        first[mine[: (len(mine) + 1) // 2]] = True
    held_out = _recognise(
        x[first], groups[first], x[~first], known.labels[~first], int(contexts.max()) + 1
    )
    return Assigned(found, _agreement(held_out, groups[~first], int(contexts.max()) + 1))


def _agreement(found: IndexArray, groups: IndexArray, contexts: int) -> float:
    """Return how well contexts were recognised, on average over the groups of classes that have
    several: 0 as by chance.
    """
    names = np.unique(groups)
    classes = names // contexts
    scores = []
    for name in names:
        choices = int((classes == name // contexts).sum())
        if choices > 1:
            recall = float((found[groups == name] == name % contexts).mean())
            scores.append((recall - 1 / choices) / (1 - 1 / choices))
    return float(np.mean(scores)) if scores else 0.0


def _recognise(
    x: FloatArray, groups: IndexArray, new: FloatArray, labels: IndexArray, contexts: int
) -> IndexArray:
    """Return the context of each new sample: that of the likeliest group of its class."""
    names, sizes = np.unique(groups, return_counts=True)
    # Of one sample nothing is known of how others may be, unless its class has no other
    classes = names // contexts
    has_larger = np.isin(classes, classes[sizes > 1])
    names = names[(sizes > 1) | ~has_larger]
    kept = np.isin(groups, names)
    x = x[kept]
    groups = groups[kept]
    if len(names) == 1:
        return np.full(len(new), names[0] % contexts)
    model = LinearDiscriminantAnalysis(
        solver="lsqr", shrinkage="auto", priors=np.full(len(names), 1 / len(names))
    )
    likelihood = model.fit(x, groups).decision_function(new)
    if likelihood.ndim == 1:  # of two groups scikit-learn gives the second's
        likelihood = np.stack([-likelihood, likelihood], axis=1)
    other_class = names[None, :] // contexts != labels[:, None]
    likelihood = np.where(other_class, -np.inf, likelihood)
    found: IndexArray = names[likelihood.argmax(1)] % contexts
    return found
