"""Choose the samples that contexts are sought in and judged by."""

from __future__ import annotations

import numpy as np

from pfdl.contexts._arrays import IndexArray

CLUSTERED = 4000
"""Clusters are sought in so many samples; all others are assigned to them."""


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
