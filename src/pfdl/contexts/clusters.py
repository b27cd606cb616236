"""Contexts as clusters: over all samples, or within classes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from pfdl.contexts._arrays import FloatArray, IndexArray
from pfdl.decorrelation.linear import group_means, predict_left_out

PRINCIPAL = 64
"""Clusters are sought in so many main coordinates; distances in more cost more and say the same."""

STARTS, MOST_TURNS, SWEEPS = 2, 30, 20


@dataclass(frozen=True, eq=False)
class Clusters:
    """Contexts by distance: a sample z of class y is in the context k whose centre a_y + b_k is nearest.

    Attributes:
        projection: From standardised features to the coordinates z, shape (p, q).
        of_class: a, shape (classes, q); zero where clusters are sought over all samples.
        of_context: b, shape (contexts, q).
        separation: How clearly the clusters are apart, −1 to 1: the mean of (other − own) / max(own, other), of the
            distances to the own and to the nearest other centre.
    """

    projection: FloatArray
    of_class: FloatArray
    of_context: FloatArray
    separation: float

    def assign(self, standardised: FloatArray, y: IndexArray) -> IndexArray:
        """Return the context of each sample, shape (n,)."""
        rest = standardised @ self.projection - self.of_class[y]
        nearest: IndexArray = _squared_distances(rest, self.of_context).argmin(axis=1)
        return nearest


class PooledClusters:
    """Seek clusters over all samples, whatever their class.

    They are contexts if what surrounds the object varies more than the object does, as a colour that fills the image.
    """

    name = "pooled"

    def __init__(self, standardised: FloatArray, y: IndexArray) -> None:
        self._projection = _principal(standardised)
        self._z = standardised @ self._projection
        self._single = self._z.astype(np.float32)  # k-means takes half as long
        self._classes = int(y.max()) + 1

    def fit(self, number: int, seed: int, starts: int) -> Clusters:
        """Return the best of several runs of k-means."""
        fits = (_k_means(self._single, number, seed + start, 50) for start in range(starts))
        best = min(fits, key=lambda fit: float(fit.inertia_))
        centers = np.asarray(best.cluster_centers_, dtype=np.float64)
        zero = np.zeros((self._classes, self._z.shape[1]))
        return Clusters(self._projection, zero, centers, _separation(self._z, centers))


class WithinClusters:
    """Seek groups within classes, in what features predict of each other there.

    Hypothesis: a feature has a part from the class and a part from the context, and a context moves many features
    together. So what features predict of each other within a class is the context's part. Each feature is predicted
    from all the others, with every class at its own mean; then contexts are sought such that

        predicted part = a part of the class + a part of the context + a rest as small as possible.

    Fitting both parts at once matters: the mean of a class that mostly stands in one context is also that context's.
    """

    name = "within"

    def __init__(self, standardised: FloatArray, y: IndexArray) -> None:
        left_out = predict_left_out(standardised, y)
        predict = np.zeros((standardised.shape[1], int(left_out.varies.sum())))
        predict[left_out.varies] = left_out.coefficients / left_out.scale[:, None]
        if not left_out.varies.any():  # within classes nothing varies: all samples at one point
            predict = np.zeros((standardised.shape[1], 1))
        self._projection = predict @ _principal(standardised @ predict)
        self._z = standardised @ self._projection
        self._beginnings = [
            beginning.astype(np.float32) for beginning in (self._z - group_means(self._z, y)[y], self._z)
        ]
        self._y = y

    def fit(self, number: int, seed: int, starts: int) -> Clusters:
        """Return the best of several fits, from clusters within classes and from clusters of all samples."""
        fits = []
        for start in range(min(STARTS, starts)):
            for beginning in self._beginnings:
                first = _k_means(beginning, number, seed + start, 10).labels_.astype(np.intp)
                fits.append(two_way(self._z, self._y, first, number))
        _, a, b = min(fits, key=lambda fit: fit[0])
        return Clusters(self._projection, a, b, _separation(self._z - a[self._y], b))


def two_way(z: FloatArray, y: IndexArray, group: IndexArray, number: int) -> tuple[float, FloatArray, FloatArray]:
    """Minimise Σ ‖z_i − a_y(i) − b_g(i)‖² over a, b and g by turns, from a first g.

    The means a and b follow from sums over classes, over contexts and the counts of both, which are small; so a turn
    passes over the samples twice, for the sums and for the distances.

    Returns:
        The sum, a of shape (classes, q) and b of shape (number, q).
    """
    of_class = np.eye(int(y.max()) + 1)[y]
    class_sizes, class_sums = of_class.sum(axis=0).clip(min=1), of_class.T @ z
    squared = float((z**2).sum())
    a, b = np.zeros_like(class_sums), np.zeros((number, z.shape[1]))
    missed = np.inf
    for _ in range(MOST_TURNS):
        of_group = np.eye(number)[group]
        group_sums, counts = of_group.T @ z, of_class.T @ of_group
        group_sizes = counts.sum(axis=0).clip(min=1)
        for _ in range(SWEEPS):
            b = (group_sums - counts.T @ a) / group_sizes[:, None]
            a = (class_sums - counts @ b) / class_sizes[:, None]
        distance = -2 * z @ b.T + (2 * a @ b.T + (b**2).sum(axis=1))[y]  # less what is the same for all contexts
        before, group = group, distance.argmin(axis=1)
        constant = squared - 2 * float((class_sums * a).sum()) + float(class_sizes @ (a**2).sum(axis=1))
        missed = constant + float(distance.min(axis=1).sum())
        if np.array_equal(group, before):
            break
    return missed, a, b


def _k_means(z: NDArray[np.float32], number: int, seed: int, most_turns: int) -> KMeans:
    """Run k-means from centres by k-means++, which scikit-learn draws in most of the time that it takes here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than clusters: some stay empty
        return KMeans(number, init=_spread_out(z, number, seed), n_init=1, max_iter=most_turns).fit(z)


def _spread_out(z: NDArray[np.float32], number: int, seed: int) -> NDArray[np.float32]:
    """Draw samples as centres, each in proportion to its squared distance from the nearest drawn before (k-means++)."""
    rng = np.random.default_rng(seed)
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
    directions: FloatArray = vectors[:, ::-1][:, :PRINCIPAL]
    return directions


def _squared_distances(z: FloatArray, centers: FloatArray) -> FloatArray:
    """Return the squared distances to the centres, less what is the same for all of them."""
    distances: FloatArray = (centers**2).sum(axis=1) - 2 * z @ centers.T
    return distances


def _separation(z: FloatArray, centers: FloatArray) -> float:
    squared = _squared_distances(z, centers) + (z**2).sum(axis=1, keepdims=True)
    nearest = np.sqrt(np.partition(squared.clip(min=0.0), 1, axis=1)[:, :2])
    own, other = nearest[:, 0], nearest[:, 1]
    return float(np.mean((other - own) / np.where(other > 0, other, 1.0)))
