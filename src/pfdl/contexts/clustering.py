"""The finders ``pooled`` and ``within``: clusters over all samples, or within classes, on which
random halves of the features agree.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.metrics import adjusted_rand_score

from pfdl.contexts import sampling
from pfdl.contexts._arrays import FloatArray, IndexArray
from pfdl.contexts.clusters import Clustering, Clusters, PooledClusters, WithinClusters
from pfdl.contexts.early import HALVINGS, ShortTraining
from pfdl.contexts.finders import Demands, Proposal
from pfdl.contexts.probe import one_thread

EQUALLY_STABLE = 0.02
"""Numbers of contexts whose stability differs by less are equally good."""

EQUALLY_CLEAR = 0.01
"""Of equally good numbers the one with the clearest clusters is taken; within this the smaller."""

STARTS = 8
OTHER_STARTS = 1000
"""How often k-means starts, and how far the seeds of the two halves are apart."""

SETTLED = 0.95
"""Clusters on which halves of the features agree so well are clearly apart: no other number is
wanted.
"""

NUMBERS = range(2, 13)
"""Numbers of clusters that are tried."""

OF_POOLED = Demands(agreement=SETTLED)
"""Clusters over all classes may be classes that look alike; they count only where they are clearly
apart.
"""

OF_WITHIN = Demands(agreement=0.5, gain=0.01)
"""Halfway between chance and full agreement; and half the gain is enough, for clusters within
classes cannot be classes that look alike.
"""


def find_pooled(
    features: FloatArray,
    labels: IndexArray,
    *,
    seed: int = 0,
    num_contexts: int | None = None,
    least_agreement: float = SETTLED,
) -> Iterator[Proposal]:
    """Find clusters over all samples, whatever their class: what varies more than the object."""
    yield from _find(
        PooledClusters,
        "Clusters over all classes.",
        OF_POOLED,
        features,
        labels,
        seed=seed,
        num_contexts=num_contexts,
        least_agreement=least_agreement,
    )


def find_within(
    features: FloatArray,
    labels: IndexArray,
    *,
    seed: int = 0,
    num_contexts: int | None = None,
    least_agreement: float = 0.5,
) -> Iterator[Proposal]:
    """Find groups within classes, in what features predict of each other there."""
    yield from _find(
        WithinClusters,
        "Clusters within classes.",
        OF_WITHIN,
        features,
        labels,
        seed=seed,
        num_contexts=num_contexts,
        least_agreement=least_agreement,
    )


def _find(
    kind: type[Clustering],
    sentence: str,
    demands: Demands,
    features: FloatArray,
    labels: IndexArray,
    *,
    seed: int,
    num_contexts: int | None,
    least_agreement: float,
) -> Iterator[Proposal]:
    """Yield the best number of clusters in a part of the samples, then larger ones."""
    rows = np.arange(len(labels))
    if len(labels) > sampling.CLUSTERED:
        training = ShortTraining.fit(features, labels, np.random.default_rng(seed))
        rows = sampling.rows_to_cluster(labels, np.flatnonzero(training.predicted != labels), seed)
    with one_thread():
        search = NumberSearch(
            kind,
            features[rows],
            labels[rows],
            number=num_contexts,
            least=least_agreement,
            seed=seed,
        )
    for number in search.numbers_in_turn():
        with one_thread():
            clusters = search.fit(number)
        yield Proposal(
            clusters.assign(features, labels),
            sentence,
            stability=search.stability[number],
            assign=clusters.assign,
            demands=demands,
        )


class NumberSearch:
    """Search for the number of clusters on which halves of the features agree best, and larger ones
    on which they agree well.

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

    Attributes:
        stability: The agreement of halves for each number. Of numbers that were given up early it
            is what was seen of it, which is below what was needed.
    """

    def __init__(
        self,
        kind: type[Clustering],
        z: FloatArray,
        y: IndexArray,
        *,
        number: int | None,
        least: float,
        seed: int,
    ) -> None:
        rng = np.random.default_rng(seed)
        self._random_state = int(rng.integers(2**31))
        distinct = len({row.tobytes() for row in z})
        self._numbers = [one for one in NUMBERS if one <= max(distinct, 2)]
        if number is not None:
            self._numbers = [number]
        halves = [np.array_split(rng.permutation(z.shape[1]), 2) for _ in range(HALVINGS)]
        self._halves = [_cluster_halves(kind, z, y, pair) for pair in halves]
        self._whole = kind(z, y)
        self._least = least
        self._agreements: dict[tuple[int, int, int], float] = {}
        self.stability: dict[int, float] = {}

    def numbers_in_turn(self) -> Iterator[int]:
        """Yield the best number, and then larger ones of use, the largest first."""
        with one_thread():
            best = self._best_number()
        yield best
        if 0 < self._least <= max(self.stability.values()) < SETTLED:
            with one_thread():
                larger = self._larger_numbers(best)
            yield from larger

    def fit(self, number: int) -> Clusters:
        """Return clusters of all features."""
        return self._whole.fit(number, self._random_state, STARTS)

    def _best_number(self) -> int:
        """Return, of the numbers on which halves agree equally well, that of the clearest clusters,
        and of equally clear ones the smallest.
        """
        for number in self._numbers:
            needed = max(self._least, *self.stability.values(), 0.0)
            self.stability[number] = self._measure(number, needed)
        best = max(self.stability.values())
        equal = [one for one in self._numbers if self.stability[one] >= best - EQUALLY_STABLE]
        clearness = {one: self._whole.separation(self.fit(one)) for one in equal}
        clearest = max(clearness.values())
        return min(one for one in equal if clearness[one] >= clearest - EQUALLY_CLEAR)

    def _larger_numbers(self, best: int) -> list[int]:
        """Return the larger numbers on which halves agree well, and better than on one less or
        more.
        """
        self.stability = {one: self._measure(one, self._least) for one in self._numbers}
        larger = [one for one in self._numbers if one > best and self._is_peak(one)]
        return larger[::-1]

    def _is_peak(self, number: int) -> bool:
        """Return whether halves agree at least as well as on the numbers beside.

        Of the last number this is unknown: agreement may rise further. So it is no peak; it can
        still be the best number.
        """
        if number + 1 not in self.stability or self.stability[number] < self._least:
            return False
        return self.stability[number] >= max(self.stability[number - 1], self.stability[number + 1])

    def _measure(self, number: int, needed: float) -> float:
        """Return the mean agreement, or as much of it as shows that it cannot be what is needed."""
        glance = self._least or needed
        if needed >= SETTLED:
            glance = needed
        at_a_glance = self._agreement(0, number, 1)
        if at_a_glance < glance / 2:
            return at_a_glance  # a poor optimum costs less than that: more starts would not help
        first = self._agreement(0, number, STARTS)
        if (first + 1) / 2 < needed - EQUALLY_STABLE:
            return first
        return (first + self._agreement(1, number, STARTS)) / 2

    def _agreement(self, pair: int, number: int, starts: int) -> float:
        """Return the adjusted Rand index of clusters by both halves of the features."""
        key = (pair, number, starts)
        if key not in self._agreements:
            # from starts of their own, or both halves would end in the same poor optimum and agree
            # on it
            one, other = (
                half.fit(number, self._random_state + OTHER_STARTS * side, starts).own
                for side, half in enumerate(self._halves[pair])
            )
            self._agreements[key] = float(adjusted_rand_score(one, other))
        return self._agreements[key]


def _cluster_halves(
    kind: type[Clustering], z: FloatArray, y: IndexArray, pair: list[IndexArray]
) -> list[Clustering]:
    """Return what seeks clusters by each half of the features."""
    return [kind(z[:, half], y) for half in pair]
