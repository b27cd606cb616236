"""Contexts as clusters: over all samples, or within classes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances

from pfdl.contexts._arrays import FloatArray, IndexArray
from pfdl.contexts.ridge import group_means, predict_left_out

PRINCIPAL = 64
"""Clusters are sought in so many main coordinates; distances in more cost more and say the same."""

MOST_STARTS = 2
MOST_TURNS = 30

MOST_CHANGED = 1e-3
"""Turns end when no more than this share of the samples changes its context."""

FITTED = 2000
"""What features predict of each other is fitted to about so many samples."""

SingleArray: TypeAlias = NDArray[np.float32]
"""In single precision k-means takes half as long."""


@dataclass(frozen=True, eq=False)
class Clusters:
    """Contexts by distance: a sample z of class y is in the context k whose centre a_y + b_k is
    nearest.

    Attributes:
        projection: From standardised features to the coordinates z, shape (p, q).
        of_class: a, shape (classes, q); zero where clusters are sought over all samples.
        of_context: b, shape (contexts, q).
        own: The context of each sample that they were fitted to, shape (n,).
    """

    projection: FloatArray
    of_class: SingleArray
    of_context: SingleArray
    own: IndexArray

    def assign(self, standardised: FloatArray, y: IndexArray) -> IndexArray:
        """Return the context of each sample, shape (n,)."""
        rest = standardised @ self.projection - self.of_class[y]
        return np.asarray(
            ((self.of_context**2).sum(axis=1) - 2 * rest @ self.of_context.T).argmin(axis=1)
        )


class PooledClusters:
    """Seek clusters over all samples, whatever their class.

    They are contexts if what surrounds the object varies more than the object does, as a colour
    that fills the image.
    """

    name = "pooled"

    def __init__(self, standardised: FloatArray, y: IndexArray) -> None:
        self._projection = _principal(standardised)
        self._z = (standardised @ self._projection).astype(np.float32)  # k-means takes half as long
        self._classes = int(y.max()) + 1

    def fit(self, number: int, seed: int, starts: int) -> Clusters:
        """Return the best of several runs of k-means."""
        found = _k_means(self._z, number, seed, starts, 50)
        zero = np.zeros((self._classes, self._z.shape[1]), dtype=np.float32)
        return Clusters(self._projection, zero, found.cluster_centers_, found.labels_)

    def separation(self, found: Clusters) -> float:
        """Return how clearly clusters are apart."""
        return _separation(self._z, found.of_context)


class WithinClusters:
    """Seek groups within classes, in what features predict of each other there.

    Hypothesis: a feature has a part from the class and a part from the context, and a context moves
    many features together. So what features predict of each other within a class is the context's
    part. Each feature is predicted from all the others, with every class at its own mean; then
    contexts are sought such that

        predicted part = a part of the class + a part of the context + a rest as small as possible.

    Fitting both parts at once matters: the mean of a class that mostly stands in one context is
    also that context's.
    """

    name = "within"

    def __init__(self, standardised: FloatArray, y: IndexArray) -> None:
        predict = predict_left_out(
            standardised[:: -(-len(y) // FITTED)], y[:: -(-len(y) // FITTED)]
        ).coefficients
        if not predict.size:  # within classes nothing varies: all samples at one point
            predict = np.zeros((standardised.shape[1], 1))
        self._projection = predict @ _principal(standardised @ predict)
        z = standardised @ self._projection
        self._z = z.astype(np.float32)
        self._beginnings = ((z - group_means(z, y)[y]).astype(np.float32), self._z)
        self._y = y

    def fit(self, number: int, seed: int, starts: int) -> Clusters:
        """Return the best of several fits, from clusters within classes and from clusters of all
        samples.
        """
        fits = []
        for start in range(min(MOST_STARTS, starts)):
            for beginning in self._beginnings:
                first = _k_means(beginning, number, seed + start, 1, 10).labels_
                fits.append(two_way(self._z, self._y, first, number))
        _, a, b, own = min(fits, key=lambda fit: fit[0])
        return Clusters(self._projection, a, b, own)

    def separation(self, found: Clusters) -> float:
        """Return how clearly clusters are apart."""
        return _separation(self._z - found.of_class[self._y], found.of_context)


Clustering: TypeAlias = PooledClusters | WithinClusters
"""What seeks clusters."""


def two_way(
    z: SingleArray, y: IndexArray, group: IndexArray, number: int
) -> tuple[float, SingleArray, SingleArray, IndexArray]:
    """Minimise Σ ‖z_i − a_y(i) − b_g(i)‖² over a, b and g by turns, from a first g.

    The means a and b follow from sums over classes, over contexts and the counts of both, which are
    small; so a turn passes over the samples twice, for the sums and for the distances.

    Returns:
        The sum, a of shape (classes, q), b of shape (number, q) and g of shape (n,).
    """
    rows = np.arange(len(y))
    of_class = np.eye(int(y.max()) + 1, dtype=z.dtype)[y]
    class_sizes = of_class.sum(axis=0).clip(min=1)[:, None]
    class_sums = of_class.T @ z
    squared = float((z**2).sum(dtype=np.float64))
    a = np.zeros_like(class_sums)
    b = np.zeros((number, z.shape[1]), dtype=z.dtype)
    missed = np.inf
    for _ in range(MOST_TURNS):
        of_group = np.eye(number, dtype=z.dtype)[group]
        group_sums = of_group.T @ z
        counts = of_class.T @ of_group
        # Least squares for b, with a as it follows from b; only differences between contexts are
        # determined.
        within = np.diag(counts.sum(axis=0)) - counts.T @ (counts / class_sizes)
        b = np.linalg.lstsq(within, group_sums - counts.T @ (class_sums / class_sizes), rcond=1e-5)[
            0
        ]
        a = (class_sums - counts @ b) / class_sizes
        # Less what is the same for all contexts
        distance = z @ (-2 * b.T) + (2 * a @ b.T + (b**2).sum(axis=1))[y]
        before = group
        group = distance.argmin(axis=1)
        constant = squared + float((class_sizes * a**2 - 2 * class_sums * a).sum())
        missed = constant + float(distance[rows, group].sum(dtype=np.float64))
        if np.count_nonzero(group != before) <= MOST_CHANGED * len(y):
            break
    return missed, a, b, group


def _k_means(z: SingleArray, number: int, seed: int, starts: int, most_turns: int) -> KMeans:
    """Run k-means from centres by k-means++, which scikit-learn draws in most of the time that it
    takes here.
    """
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        # Fewer distinct points than clusters: some stay empty
        warnings.simplefilter("ignore", ConvergenceWarning)
        return KMeans(
            number,
            init=lambda x, k, random_state: _spread_out(x, k, rng),
            n_init=starts,
            max_iter=most_turns,
            tol=1e-3,
        ).fit(z)


def _spread_out(z: SingleArray, number: int, rng: np.random.Generator) -> SingleArray:
    """Draw samples as centres, each in proportion to its squared distance from the nearest drawn
    before (k-means++).
    """
    squares = np.einsum("ij,ij->i", z, z)
    centers = [z[int(rng.integers(len(z)))]]
    nearest = np.full(len(z), np.inf, dtype=np.float32)
    for _ in range(number - 1):
        distance = squares - 2 * z @ centers[-1] + centers[-1] @ centers[-1]
        nearest = np.minimum(nearest, distance.clip(min=0))
        cumulated = nearest.cumsum(dtype=np.float64)
        centers.append(z[int(np.searchsorted(cumulated, rng.random() * cumulated[-1])) % len(z)])
    return np.stack(centers)


def _principal(z: FloatArray) -> FloatArray:
    """Return the directions with the most variance, shape (p, q)."""
    centred = z - z.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return np.asarray(vectors[:, ::-1][:, :PRINCIPAL])


def _separation(z: SingleArray, centers: SingleArray) -> float:
    """Return the mean of (other − own) / other, of the distances to the nearest and to the next
    nearest centre.
    """
    nearest = np.partition(pairwise_distances(z, centers), 1, axis=1)[:, :2]
    own = nearest[:, 0]
    other = nearest[:, 1]
    return float(np.mean((other - own) / np.where(other > 0, other, 1.0)))
