"""Candidates for contexts, each found in one way from a bounded sample, to be confirmed or rejected
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
from sklearn.metrics import adjusted_rand_score

from pfdl.contexts._arrays import FloatArray, IndexArray
from pfdl.contexts.clusters import PooledClusters, WithinClusters
from pfdl.contexts.probe import RIDGES, equal_classes, held_out_predictions, spread

EQUALLY_STABLE = 0.02
"""Numbers of contexts whose stability differs by less are equally good."""

EQUALLY_CLEAR = 0.01
"""Of equally good numbers the one with the clearest clusters is taken; within this the smaller."""

STARTS, OTHER_STARTS = 8, 1000
"""How often k-means starts, and how far the seeds of the two halves are apart."""

SETTLED = 0.95
"""Clusters on which halves of the features agree so well are clearly apart: no other number is
wanted.
"""

CLUSTERED = 4000
"""Clusters are sought in so many samples; all others are assigned to them."""

LEAST_FEATURES = 4
"""With fewer, halves of the features cannot confirm each other."""

NUMBERS = range(2, 13)
"""Numbers of clusters that are tried."""

HALVINGS = 2
"""How often the features are halved to see whether both halves find the same."""

Clustering: TypeAlias = PooledClusters | WithinClusters


@dataclass(frozen=True, eq=False)
class Candidate:
    """Contexts of samples, by their features and classes.

    Attributes:
        method: The way in which they were found: ``"pooled"`` and ``"within"``, clusters;
            ``"early"``, the class that a short training predicts is the context, for what is learnt
            first goes by the context.
        stability: How well contexts by halves of the features agree.
        assign: From standardised features, shape (n, p), and classes, shape (n,), to contexts.
        held_out: Of the samples that a short training was fitted to, the prediction by the fit to
            the others.
    """

    method: str
    stability: float
    assign: Callable[[FloatArray, IndexArray], IndexArray]
    held_out: IndexArray | None = None


def train_shortly(z: FloatArray, y: IndexArray, seed: int) -> Candidate:
    """Train linear classifiers and take the ridge at which halves of the features agree best on
    what is wrong.

    The agreement is the share, of the samples on which either half errs, on which both give the
    same wrong class. A context that moves many features misleads a training with any half of them
    to the same wrong class. On samples that are merely hard, or wrongly labelled, the halves go
    wrong differently.
    """
    rng = np.random.default_rng(seed)
    classes = int(y.max()) + 1
    weight = equal_classes(y, classes)
    fold = spread(y, rng)
    predicted, fits = held_out_predictions(z, y, fold, weight, classes)
    agreement = np.zeros(len(RIDGES))
    for _ in range(HALVINGS):
        halves = np.array_split(rng.permutation(z.shape[1]), 2)
        one, other = (
            held_out_predictions(z[:, half], y, fold, weight, classes)[0] for half in halves
        )
        same = ((one == other) & (one != y)).sum(axis=1)
        agreement += same / ((one != y) | (other != y)).sum(axis=1).clip(min=1) / HALVINGS
    best = max(
        row for row in range(len(RIDGES)) if agreement[row] >= agreement.max() - EQUALLY_STABLE
    )

    def assign(z: FloatArray, y: IndexArray) -> IndexArray:
        scores = np.sum([fit.scores(z, RIDGES[best : best + 1])[0] for fit in fits], axis=0)
        return np.asarray(scores.argmax(axis=1))

    return Candidate("early", float(agreement[best]), assign, predicted[best])


def find_clusters(
    kind: type[Clustering],
    z: FloatArray,
    y: IndexArray,
    *,
    number: int | None,
    least: float,
    seed: int,
) -> Iterator[Candidate]:
    """Find the number of clusters on which halves of the features agree best, and larger ones on
    which they agree well.

    Where the halves agree almost fully, clusters are clearly apart and larger numbers would only
    cut them up. Elsewhere they shade into each other, and the best number is often too small: two
    parts of PACS are found more surely than its four styles. Then larger numbers on which halves
    agree better than on one cluster less or more are of use, too.

    Args:
        kind: Clusters over all samples or within classes.
        z: Standardised features, shape (n, p).
        y: The classes, shape (n,).
        number: The number of clusters, if it is known.
        least: Agreement below which clusters are of no use; a number that cannot reach it is given
            up early.
        seed: Seed of the halves and of k-means.

    Yields:
        The clusters on which halves agree best, then those of larger numbers, the largest first,
        which take longer.
    """
    rng = np.random.default_rng(seed)
    random_state = int(rng.integers(2**31))
    distinct = len({row.tobytes() for row in z})
    numbers = (
        [number] if number is not None else [one for one in NUMBERS if one <= max(distinct, 2)]
    )
    halves = [np.array_split(rng.permutation(z.shape[1]), 2) for _ in range(HALVINGS)]
    parts = [[kind(z[:, half], y) for half in pair] for pair in halves]

    @cache
    def agreement(pair: int, candidate: int, starts: int) -> float:
        # from starts of their own, or both halves would end in the same poor optimum and agree on
        # it
        found = [
            model.fit(candidate, random_state + OTHER_STARTS * side, starts).own
            for side, model in enumerate(parts[pair])
        ]
        return float(adjusted_rand_score(*found))

    def stability(candidate: int, needed: float) -> float:
        """Return the mean agreement, or as much of it as shows that it cannot be what is needed."""
        glance = needed if needed >= SETTLED or not least else least
        if (at_a_glance := agreement(0, candidate, 1)) < glance / 2:
            return at_a_glance  # a poor optimum costs less than that: more starts would not help
        first = agreement(0, candidate, STARTS)
        if (first + 1) / 2 < needed - EQUALLY_STABLE:
            return first
        return (first + agreement(1, candidate, STARTS)) / 2

    stable: dict[int, float] = {}
    for one in numbers:
        stable[one] = stability(one, max(least, *stable.values(), 0.0))
    best = max(stable.values())
    model = kind(z, y)

    equal = [one for one in numbers if stable[one] >= best - EQUALLY_STABLE]
    fits = {one: model.fit(one, random_state, STARTS) for one in equal}
    clear = {one: model.separation(fit) for one, fit in fits.items()}
    taken = min(one for one in equal if clear[one] >= max(clear.values()) - EQUALLY_CLEAR)
    yield Candidate(kind.name, stable[taken], fits[taken].assign)
    if 0 < least <= best < SETTLED:
        stable = {one: stability(one, least) for one in numbers}
        larger = [one for one in numbers if one > taken and stable[one] >= least]
        for one in reversed(larger):
            if stable[one] >= max(stable[one - 1], stable.get(one + 1, 1.0)):
                yield Candidate(kind.name, stable[one], model.fit(one, random_state, STARTS).assign)


def rows_to_cluster(y: IndexArray, suspected: IndexArray, seed: int) -> IndexArray:
    """Choose samples in which every context has some weight.

    Half of them are samples that a short training gets wrong, as far as there are so many, because
    rare groups are among these; the rest is drawn from all, the same number from every class as far
    as it goes.

    Args:
        y: The classes, shape (m,).
        suspected: The numbers of the samples that a short training gets wrong.
        seed: Seed of the choice.
    """
    if len(y) <= CLUSTERED:
        return np.arange(len(y))
    rng = np.random.default_rng(seed)
    rare = rng.permutation(suspected)[: CLUSTERED // 2]
    others = np.setdiff1d(np.arange(len(y)), rare)
    rest = others[stratified_rows(y[others], CLUSTERED - len(rare), rng)]
    return np.sort(np.concatenate([rare, rest]))


def stratified_rows(group: IndexArray, most: int, rng: np.random.Generator) -> IndexArray:
    """Draw at most so many samples, the same number of every group as far as it has them;
    sorted.
    """
    if len(group) <= most:
        return np.arange(len(group))
    order = rng.permutation(len(group))
    order = order[np.argsort(group[order], kind="stable")]
    sizes = np.bincount(group)
    # 0, 1, … within each group
    rank = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    by_rank = np.argsort(rank, kind="stable")[:most]
    return np.sort(order[by_rank])
