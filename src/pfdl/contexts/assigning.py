"""The contexts of further samples, by those of samples whose contexts were found."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from pfdl.contexts._arrays import FloatArray, IndexArray
from pfdl.contexts.sources import DatasetFeatures, Describe, open_features

LEAST_RECALL = 0.75
"""Contexts are recognised in further samples if, of samples that were left out of the fit, so large
a share of every group is, on average.
"""


class Assigned(NamedTuple):
    """Contexts of further samples.

    Attributes:
        contexts: Shape (n,).
        recall: The share of each group that is recognised by a fit to other samples, on average
            over the groups.
    """

    contexts: IndexArray
    recall: float

    @property
    def is_sound(self) -> bool:
        """Return whether the contexts can be recognised at all."""
        return self.recall >= LEAST_RECALL


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
    right = held_out == contexts[~first]
    recalls = [right[groups[~first] == group].mean() for group in np.unique(groups[~first])]
    return Assigned(found, float(np.mean(recalls)) if recalls else 0.0)


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
