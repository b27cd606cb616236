"""How strongly to balance groups, chosen on held-out samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pfdl._internal.validation import check_count, check_number
from pfdl.contexts._arrays import FloatArray, IndexArray, as_numbers
from pfdl.contexts.balancing import group_numbers, has_several
from pfdl.contexts.confirmation import average_shares
from pfdl.contexts.probe import RIDGES, held_out_predictions, spread
from pfdl.contexts.sources import ArrayFeatures

POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
POOLS = (1, 50)
SPLITS = 5


@dataclass(frozen=True)
class BalanceChoice:
    """How strongly to balance: the arguments of :func:`pfdl.context_sampler`.

    Attributes:
        power: α, from 0 to 1.
        pool_below: Groups of fewer samples are drawn as one group of their class.
        average: Held-out accuracy, averaged over groups, of a linear classifier so trained.
        plain_average: The same without balancing.
    """

    power: float
    pool_below: int
    average: float
    plain_average: float


def choose_balance(
    features: Any,
    labels: Any,
    contexts: Any,
    *,
    powers: Sequence[float] = POWERS,
    pools: Sequence[int] = POOLS,
    seed: int = 0,
) -> BalanceChoice:
    """Choose how strongly to balance groups by the held-out accuracy, averaged over groups.

    Linear classifiers are trained on the features with every strength, each tested on samples that it has not seen,
    in five random halvings. The mildest strength is taken that is within one standard error of the best, over the same
    samples: where balancing gains nothing, because rare groups are full of wrong labels, it is 0.

    Args:
        features: Shape (n, p): those by which the contexts were found, or of a network.
        labels: The classes, shape (n,).
        contexts: The context of each sample, shape (n,), known or inferred.
        powers: Values of α to choose from.
        pools: Sizes below which groups are pooled, to choose from.
        seed: Seed of the halvings.

    Returns:
        The choice; use it as ``context_sampler(labels, contexts, power=choice.power, pool_below=choice.pool_below)``.
    """
    for power in powers:
        check_number("a power", power)
    for pool in pools:
        check_count("a size below which groups are pooled", pool, 1)
    source = ArrayFeatures(features, labels)
    y, context = source.labels, as_numbers("contexts", contexts)
    if len(context) != len(y):
        raise ValueError(f"there are {len(y)} labels and {len(context)} contexts; give as many of each.")
    x = source.take(np.arange(len(y)))
    deviation = x.std(axis=0)
    z = (x - x.mean(axis=0))[:, deviation > 0] / deviation[deviation > 0]
    if not has_several(context) or not z.shape[1]:
        return BalanceChoice(0.0, 1, float("nan"), float("nan"))
    group = group_numbers(y, context).astype(np.intp)
    share = average_shares(group)
    settings = sorted({(0.0, 1), *((power, pool) for power in powers for pool in pools)}, key=lambda one: one[0])
    right = {one: _held_out(z, y, context, group, *one, share, seed) for one in settings}
    best = max(settings, key=lambda one: float(right[one] @ share))
    taken = next(one for one in settings if _within_error(right[best] - right[one], share))
    return BalanceChoice(*taken, float(right[taken] @ share), float(right[0.0, 1] @ share))


def _held_out(
    z: FloatArray,
    y: IndexArray,
    context: Any,
    group: IndexArray,
    power: float,
    pool: int,
    share: FloatArray,
    seed: int,
) -> FloatArray:
    """Return how often each sample is recognised when it is held out, at the ridge that is best on average."""
    sizes = group_numbers(y, context, pool)
    weight: FloatArray = np.bincount(sizes)[sizes].astype(np.float64) ** -power
    rng = np.random.default_rng(seed)
    right = np.zeros((len(RIDGES), len(y)))
    for _ in range(SPLITS):
        fold = spread(group, rng)
        right += (held_out_predictions(z, y, fold, weight, int(y.max()) + 1)[0] == y) / SPLITS
    best: FloatArray = right[int(np.argmax(right @ share))]
    return best


def _within_error(loss: FloatArray, share: FloatArray) -> bool:
    """Return whether an average over groups is within one standard error of the best one, on the same samples."""
    mean = float(loss @ share)
    return mean <= float(np.sqrt((share**2) @ (loss - mean) ** 2))
