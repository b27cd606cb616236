"""Which features are correlated, and in which order to draw them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]

DISTANCE = 0.5
"""Clusters are joined as long as the mean distance 1 − |correlation| between their features stays below this."""

NO_CLUSTER = -1
"""The cluster of a feature that is constant."""


def cluster_features(correlation: FloatArray, varies: NDArray[np.bool_]) -> tuple[IndexArray, IndexArray]:
    """Cluster features by 1 − |correlation|, with average linkage.

    Args:
        correlation: Correlations of the features that vary, shape (v, v).
        varies: Mask of them among all features, shape (p,).

    Returns:
        The cluster of every feature, from 0 for the largest on, shape (p,); and the features that vary in an order in
        which similar ones stand side by side, the largest cluster first, shape (v,).
    """
    from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
    from scipy.spatial.distance import squareform

    places = np.flatnonzero(varies)
    clusters = np.full(len(varies), NO_CLUSTER, dtype=np.intp)
    if len(places) < 2:
        clusters[places] = 0
        return clusters, places
    distance = np.clip(1 - np.abs(correlation), 0, None)
    np.fill_diagonal(distance, 0.0)
    tree = linkage(squareform(distance, checks=False), method="average")
    found = fcluster(tree, DISTANCE, criterion="distance") - 1
    leaf_order = leaves_list(tree)
    first_leaf = {cluster: place for place, cluster in reversed(list(enumerate(found[leaf_order].tolist())))}
    sizes = np.bincount(found)
    by_size = sorted(first_leaf, key=lambda cluster: (-sizes[cluster], first_leaf[cluster]))
    new_name = np.empty(len(sizes), dtype=np.intp)
    new_name[by_size] = np.arange(len(by_size))
    clusters[places] = new_name[found]
    order = places[leaf_order]
    return clusters, order[np.argsort(clusters[order], kind="stable")]


def shrink(matrix: FloatArray, most: int) -> tuple[FloatArray, IndexArray]:
    """Make a matrix small enough to look at, by means of blocks of neighbours.

    Args:
        matrix: Shape (v, v), the same order of rows and columns.
        most: The largest size wanted.

    Returns:
        The matrix of the means, shape (b, b) with b at most ``most``, and where each block begins, shape (b,).

    Example:
        >>> import numpy as np
        >>> shrink(np.arange(16.0).reshape(4, 4), most=2)
        (array([[ 2.5,  4.5],
               [10.5, 12.5]]), array([0, 2]))
    """
    size = len(matrix)
    count = min(size, most)
    starts: IndexArray = (np.arange(count) * size) // max(count, 1)
    if count == size:
        return matrix, starts
    widths = np.diff([*starts.tolist(), size])
    sums = np.add.reduceat(np.add.reduceat(matrix, starts, axis=0), starts, axis=1)
    return sums / np.outer(widths, widths), starts
