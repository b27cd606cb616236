"""How strongly to balance groups, chosen on held-out samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from pfdl.contexts._arrays import FloatArray, as_equally_many
from pfdl.contexts.balancing import group_numbers, has_several
from pfdl.contexts.confirmation import average_shares
from pfdl.contexts.probe import held_out_predictions, spread
from pfdl.contexts.sources import ArrayFeatures

POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
SPLITS = 5


def choose_balance(features: Any, labels: Any, contexts: Any, *, seed: int = 0) -> float:
    """Choose how strongly to balance groups by the held-out accuracy, averaged over groups.

    Linear classifiers are trained on the features with every strength α of 0, 0.25, 0.5, 0.75 and 1, each tested on
    samples that it has not seen, in five random halvings. The mildest strength is taken that is within one standard
    error of the best, over the same samples: where balancing gains nothing, because rare groups are full of wrong
    labels, it is 0.

    Args:
        features: Shape (n, p): those by which the contexts were found, or of a network.
        labels: The classes, shape (n,).
        contexts: The context of each sample, shape (n,), known or inferred.
        seed: Seed of the halvings.

    Returns:
        α, for ``context_sampler(labels, contexts, power=α)``.
    """
    source = ArrayFeatures(features, labels)
    y, context = as_equally_many(labels=labels, contexts=contexts)
    x = source.take(np.arange(len(y)))
    deviation = x.std(axis=0)
    z = (x - x.mean(axis=0))[:, deviation > 0] / deviation[deviation > 0]
    if not has_several(context) or not z.shape[1]:
        return 0.0
    group = group_numbers(y, context).astype(np.intp)
    share = average_shares(group)

    def held_out(power: float) -> FloatArray:
        """Return how often each sample is recognised when it is held out, at the ridge that is best on average."""
        weight: FloatArray = np.bincount(group)[group].astype(np.float64) ** -power
        rng = np.random.default_rng(seed)
        folds = [spread(group, rng) for _ in range(SPLITS)]
        right = np.mean([held_out_predictions(z, y, fold, weight, int(y.max()) + 1)[0] == y for fold in folds], axis=0)
        best: FloatArray = right[int(np.argmax(right @ share))]
        return best

    right = {power: held_out(power) for power in POWERS}
    best = max(right.values(), key=lambda one: float(one @ share))
    return next(power for power in POWERS if _within_error(best - right[power], share))


def _within_error(loss: FloatArray, share: FloatArray) -> bool:
    """Return whether an average over groups is within one standard error of the best one, on the same samples."""
    mean = float(loss @ share)
    return mean <= float(np.sqrt((share**2) @ (loss - mean) ** 2))
