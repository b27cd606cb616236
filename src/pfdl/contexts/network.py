"""Contexts by published methods: JTT, SPARE and EIIL from the outputs of a network trained for a
few epochs, and SSA.

For the first three train the network by plain risk minimisation for T epochs, hand over its logits
on all training samples, and train a second network on what is returned. Nothing is checked, as in
the papers. T and the other settings are the user's; the authors choose them by the worst group of
validation samples whose groups are known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pfdl._internal.validation import check_count, check_number
from pfdl.contexts._arrays import IndexArray, as_array, as_classes, as_numbers
from pfdl.contexts.finders import Proposal
from pfdl.contexts.probe import equal_groups
from pfdl.contexts.sources import ArrayFeatures

MOST_CLUSTERS = 10
CLEARLY_APART = 0.9
"""Of SPARE in SpuCo: the most clusters of a class, and the silhouette from which on they are drawn
equally often.
"""

CONFIDENT = 0.95
"""From this probability on a context counts as known in the second fit."""


def find_by_jtt(logits: Any, labels: Any, *, upweight: int = 20) -> Proposal:
    """Split the samples into those that the network gets right, context 0, and wrong, context 1
    (Liu et al., 2021).

    For the second training JTT adds each wrong sample λ_up times to the training set. To repeat
    them exactly, as the authors do, take ``Subset(dataset, np.repeat(np.arange(n),
    found.draws.astype(int)))``.

    Args:
        logits: Logits of a first network after T epochs, shape (n, classes), or its predicted
            classes, shape (n,).
        labels: The classes as numbers from 0, shape (n,).
        upweight: λ_up; the authors choose among 20, 50 and 100 for images.

    Returns:
        The contexts; a wrong sample is drawn 1 + λ_up times as often as a right one, as in the
        authors' code.

    Example:
        >>> find_by_jtt([0, 0, 1], [0, 1, 1], upweight=20).draws
        array([ 1., 21.,  1.])
    """
    check_count("upweight", upweight, 0)
    y = _labels(labels)
    wrong = as_classes(logits, y) != y
    sentence = (
        f"The network gets {int(wrong.sum())} of {len(y)} samples wrong; each is added {upweight}"
        " times."
    )
    return Proposal(wrong.astype(np.intp), sentence, draws=1.0 + upweight * wrong)


def find_by_spare(
    logits: Any, labels: Any, *, clusters: int | None = None, power: float = 2.0, seed: int = 0
) -> Proposal:
    """Cluster the logits within each class by k-means (Yang et al., 2024).

    A sample of a cluster of n_c samples is drawn in proportion to 1/n_c, or 1/n_c^power in classes
    whose clusters are not clearly apart, and all classes equally often. The defaults are those of
    SpuCo 2.0.

    Args:
        logits: Logits of a first network after few epochs, shape (n, classes).
        labels: The classes as numbers from 0, shape (n,).
        clusters: Number of clusters in each class; by default that of 2 to 10 with the best
            silhouette.
        power: The exponent in classes whose clusters are not clearly apart: with a silhouette below
            0.9.
        seed: Seed of k-means.

    Returns:
        The contexts, those of different classes with different numbers, and the draws.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    if clusters is not None:
        check_count("clusters", clusters, 2)
    check_number("power", power)
    y = _labels(labels)
    z = _logits(logits, labels).numpy()
    contexts = np.zeros(len(y), dtype=np.intp)
    draws = np.zeros(len(y))
    number = 0
    unclear = 0
    for label in np.unique(y):
        mine = np.flatnonzero(y == label)
        best: tuple[float, IndexArray] = (-2.0, np.zeros(len(mine), dtype=np.intp))
        for k in (
            [clusters] if clusters is not None else range(2, min(MOST_CLUSTERS, len(mine) - 1) + 1)
        ):
            found = KMeans(k, n_init=10, random_state=seed).fit_predict(z[mine]).astype(np.intp)
            best = max(
                best, (float(silhouette_score(z[mine], found)), found), key=lambda one: one[0]
            )
        score, cluster = best
        exponent = 1.0 if score >= CLEARLY_APART else power
        unclear += exponent != 1.0
        share = 1.0 / np.bincount(cluster)[cluster] ** exponent
        draws[mine] = share / share.sum()
        contexts[mine] = number + cluster
        number += int(cluster.max()) + 1
    sentence = f"{number} clusters of logits, which in {unclear} classes are not clearly apart."
    return Proposal(contexts, sentence, draws=draws * len(y) / len(np.unique(y)))


def find_by_eiil(
    logits: Any, labels: Any, *, steps: int = 20_000, learning_rate: float = 0.01, seed: int = 0
) -> Proposal:
    """Split the samples into two environments between which the network is least invariant (Creager
    et al., 2021).

    Each sample has a probability of being in the one; Adam raises the mean over both environments
    of IRM's penalty, the squared gradient of the risk by a factor on the logits. Steps and learning
    rate are SpuCo's. EIIL's own second training is IRM between these environments; SpuCo draws both
    equally often, which is what ``draws`` does.

    Args:
        logits: Logits of the network to be improved, shape (n, classes).
        labels: The classes as numbers from 0, shape (n,).
        steps: Steps of Adam.
        learning_rate: The size of these steps.
        seed: The first probabilities follow from it.

    Returns:
        The contexts, 0 or 1, and the draws.
    """
    check_count("steps", steps, 1)
    check_number("learning_rate", learning_rate)
    z = _logits(logits, labels).float()
    y = torch.from_numpy(_labels(labels))
    # The gradient of a sample's cross-entropy by a factor on its logits, at 1.
    slope = (z.softmax(1) * z).sum(1) - z[torch.arange(len(y)), y]
    scores = torch.randn(len(y), generator=torch.Generator().manual_seed(seed)).requires_grad_()
    optimizer = torch.optim.Adam([scores], lr=learning_rate)
    for _ in range(steps):
        with torch.no_grad():
            share = scores.sigmoid()
            one = (slope * share).mean()
            other = (slope * (1 - share)).mean()
            scores.grad = (other - one) * slope * share * (1 - share) / len(y)
        optimizer.step()
    contexts: IndexArray = (scores.detach() > 0).numpy().astype(np.intp)
    sizes = np.bincount(contexts, minlength=2)
    sentence = f"Two environments of {sizes[0]} and {sizes[1]} samples."
    return Proposal(contexts, sentence, draws=len(y) / 2 / sizes[contexts])


def spread_contexts(
    features: Any, labels: Any, *, known_features: Any, known_labels: Any, known_contexts: Any
) -> Proposal:
    """Infer contexts from some samples whose contexts are known, after SSA.

    SSA (spread spurious attribute; Nam et al., 2022) trains a network to tell the contexts; this
    takes the features of one. A logistic regression learns the contexts of the known samples, all
    groups counting the same, and is fitted again with the samples of whose context it is sure.
    Nothing is checked.

    Args:
        features: Features of the samples whose contexts are wanted, shape (n, p).
        labels: Their classes, shape (n,).
        known_features: The same features of samples whose contexts are known, shape (m, p).
        known_labels: Their classes, shape (m,).
        known_contexts: Their contexts, shape (m,), numbers or names.

    Returns:
        The contexts of the n samples, numbered in the sorted order of the known ones.

    Raises:
        ValueError: If the shapes do not fit, or fewer than two contexts are known.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    x = as_array(features)
    known_x = as_array(known_features)
    context = as_numbers("known_contexts", known_contexts)
    y = as_array(labels)
    known_y = as_array(known_labels)
    if (
        x.shape[1:] != known_x.shape[1:]
        or len(x) != len(y)
        or not len(known_x) == len(known_y) == len(context)
    ):
        raise ValueError(
            f"features have shape {x.shape}, labels {y.shape}, known_features {known_x.shape},"
            f" known_labels {known_y.shape} and known_contexts {context.shape}; give (n, p), (n,),"
            " (m, p), (m,) and (m,)."
        )
    if len(np.unique(context)) < 2:
        raise ValueError("fewer than two contexts are known, so there is nothing to tell apart.")
    source = ArrayFeatures(np.concatenate([known_x, x]), np.concatenate([known_y, y]))
    z = StandardScaler().fit_transform(source.take(np.arange(len(source))))
    known = np.arange(len(source)) < len(context)
    believed = np.concatenate([context, np.zeros(len(x), dtype=context.dtype)])
    for _ in range(2):
        weight = equal_groups(source.labels[known], believed[known])
        fit = LogisticRegression(max_iter=1000).fit(
            z[known], believed[known], sample_weight=weight / weight.mean()
        )
        believed[len(context) :] = fit.predict(z[len(context) :])
        known[len(context) :] = fit.predict_proba(z[len(context) :]).max(axis=1) >= CONFIDENT
    sentence = (
        f"The contexts of {len(context)} samples were spread to {len(x)};"
        f" {known.sum() - len(context)} are sure."
    )
    return Proposal(believed[len(context) :].astype(np.intp), sentence)


def _labels(labels: Any) -> NDArray[np.int64]:
    y = as_array(labels)
    if y.ndim != 1 or y.dtype.kind not in "iu" or not len(y) or y.min() < 0:
        raise ValueError(
            "labels must be the numbers of the classes, from 0, in the order of the logits; shape"
            " (n,)."
        )
    return y.astype(np.int64)


def _logits(logits: Any, labels: Any) -> Tensor:
    y = _labels(labels)
    z = torch.as_tensor(as_array(logits))
    if (
        z.ndim != 2
        or len(z) != len(y)
        or z.shape[1] <= y.max()
        or not bool(torch.isfinite(z).all())
    ):
        raise ValueError(
            f"logits have shape {tuple(z.shape)} for {len(y)} labels up to {y.max()}; give finite"
            " ones, (n, classes)."
        )
    return z
