"""The scene a sample stands in, read from its features without anybody having labelled it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

from pfdl._internal.validation import check_count
from pfdl.decorrelation.linear import group_means, predict_left_out
from pfdl.objectives.weightings.balance import SMOOTHING, balancing_table

__all__ = ["context_weights", "infer_contexts"]

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]

CANDIDATES = (2, 3, 4, 6, 8, 12)
"""Numbers of groups that are tried."""

AS_GOOD = 0.02
"""Of numbers of groups whose agreement differs by less, the larger is taken: a scene in two parts is still a scene, two
scenes in one group are not told apart."""

HALVINGS, STARTS, MOST_TURNS, SWEEPS, PRINCIPAL, MOST_SAMPLES = 3, 3, 30, 20, 64, 4000


def infer_contexts(
    features: ArrayLike, labels: ArrayLike, *, contexts: int | None = None, confirmation: float = 0.8, seed: int = 0
) -> IndexArray:
    """Find groups of samples that share a scene, from features and class labels alone.

    Hypothesis: a feature has a part from the class and a part from the scene, and a scene moves many features together.
    So what features predict of each other *within* a class is the scene's part. Each feature is predicted from all the
    others, with every class at its own mean (g, linear and in closed form); then groups are sought such that

        predicted part = a part of the class + a part of the group + a rest as small as possible.

    Fitting both parts at once matters: the mean of a class that mostly stands in one scene is also that scene's.

    Give features of a pretrained network, or :func:`pfdl.image_statistics`. A network that is trained on these labels
    is no good: its features within a class soon tell more of the object than of the scene.

    A scene that moves many features is found by half of them, and the other half confirms it. So the number of groups
    is the one on which halves of the features agree best; where they agree well on none, groups might be anything, and
    all samples are put into one.

    Args:
        features: Shape (n, p).
        labels: The classes, shape (n,).
        contexts: Number of groups; by default that of ``CANDIDATES`` which is confirmed best.
        confirmation: The adjusted Rand index between the groups by two random halves of the features, mean of three
            halvings, from which on they count as confirmed.
        seed: Of the clustering and the halves.

    Returns:
        The number of each sample's group, shape (n,).

    Raises:
        ValueError: If the arrays do not fit, or there are fewer samples than groups.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(2, size=400)
        >>> scenes = np.where(rng.random(400) < 0.8, labels, 1 - labels)  # most of each class in a scene of its own
        >>> features = rng.normal(size=(400, 12))
        >>> features[:, :6] += 3.0 * scenes[:, None]  # six features move with the scene,
        >>> features[:, 6] += 6.0 * labels  # one tells the class
        >>> found = infer_contexts(features, labels, contexts=2)
        >>> bool(abs(np.corrcoef(found, scenes)[0, 1]) > 0.95)
        True
    """
    u, y = _check(features, labels)
    if contexts is not None:
        check_count("contexts", contexts, 1)
        if contexts > len(u):
            raise ValueError(f"contexts is {contexts}, but there are only {len(u)} samples.")
    candidates = [contexts] if contexts is not None else [number for number in CANDIDATES if number <= len(u)]
    if not candidates:
        return np.zeros(len(u), dtype=np.intp)
    few = _some(len(u), seed)
    halves = _halves(u[few], y[few], seed)
    agreement = {number: _agreement(halves, y[few], number, seed) for number in candidates}
    best = max(agreement.values())
    if best < confirmation:
        return np.zeros(len(u), dtype=np.intp)
    finest = max(number for number in candidates if agreement[number] >= best - AS_GOOD)
    return _groups(_scene_part(u, y), y, finest, seed)


def _some(samples: int, seed: int) -> IndexArray:
    """As many samples as it takes to count scenes; more would only take longer."""
    if samples <= MOST_SAMPLES:
        return np.arange(samples)
    return np.sort(np.random.default_rng(seed).choice(samples, MOST_SAMPLES, replace=False))


def _halves(u: FloatArray, y: IndexArray, seed: int) -> list[tuple[FloatArray, FloatArray]]:
    """The scene's part of random halves of the features."""
    rng = np.random.default_rng(seed)
    order = [np.array_split(rng.permutation(u.shape[1]), 2) for _ in range(HALVINGS)]
    return [(_scene_part(u[:, one], y), _scene_part(u[:, other], y)) for one, other in order]


def _agreement(halves: Sequence[tuple[FloatArray, FloatArray]], y: IndexArray, number: int, seed: int) -> float:
    """How well halves of the features agree on a number of groups."""
    found = [[_groups(part, y, number, seed) for part in parts] for parts in halves]
    return float(np.mean([adjusted_rand_score(*groups) for groups in found]))


def _scene_part(u: FloatArray, y: IndexArray) -> FloatArray:
    """What the features predict of each other, by what they do within classes; its main coordinates."""
    left_out = predict_left_out(u, y)
    varying = u[:, left_out.varies]
    return _principal((varying - varying.mean(axis=0)) / left_out.scale @ left_out.coefficients)


def _groups(z: FloatArray, y: IndexArray, contexts: int, seed: int) -> IndexArray:
    """The best of several fits: from clusters within classes, and from clusters of all, which see a dominant scene."""
    fits = []
    for start in range(STARTS):
        for beginning in (z - group_means(z, y)[y], z):
            first = KMeans(contexts, n_init=1, max_iter=10, random_state=seed + start).fit_predict(beginning)
            fits.append(_two_way(z, y, first.astype(np.intp), contexts))
    return min(fits, key=lambda fit: fit[0])[1]


def _principal(z: FloatArray) -> FloatArray:
    """The coordinates with the most variance; distances in all of them cost more and say the same."""
    if min(z.shape) <= PRINCIPAL:
        return z
    reduced: FloatArray = PCA(PRINCIPAL, svd_solver="randomized", random_state=0).fit_transform(z)
    return reduced


def _two_way(z: FloatArray, y: IndexArray, group: IndexArray, contexts: int) -> tuple[float, IndexArray]:
    """Minimise Σ ‖z_i − a_y(i) − b_g(i)‖² over a, b and g by turns, from a first g; the sum and g.

    The means a and b follow from sums over classes, over groups and the counts of both, which are small; so a turn
    passes over the samples twice, for the sums and for the distances.
    """
    of_class = np.eye(int(y.max()) + 1)[y]
    class_sizes, class_sums = of_class.sum(axis=0).clip(min=1), of_class.T @ z
    squared = float((z**2).sum())
    a = np.zeros_like(class_sums)
    missed = np.inf
    for _ in range(MOST_TURNS):
        of_group = np.eye(contexts)[group]
        group_sums, counts = of_group.T @ z, of_class.T @ of_group
        group_sizes = counts.sum(axis=0).clip(min=1)
        for _ in range(SWEEPS):
            b = (group_sums - counts.T @ a) / group_sizes[:, None]
            a = (class_sums - counts @ b) / class_sizes[:, None]
        distance = -2 * z @ b.T + (2 * a @ b.T + (b**2).sum(axis=1))[y]  # less what is the same for all groups
        before, group = group, distance.argmin(axis=1)
        constant = squared - 2 * float((class_sums * a).sum()) + float(class_sizes @ (a**2).sum(axis=1))
        missed = constant + float(distance.min(axis=1).sum())
        if np.array_equal(group, before):
            break
    return missed, group


def context_weights(labels: ArrayLike, contexts: ArrayLike, *, smoothing: float = SMOOTHING) -> FloatArray:
    """Weights under which the contexts are equally frequent in every class, so that they tell nothing about it.

    Args:
        labels: The classes, shape (n,).
        contexts: The context of each sample, shape (n,), known or from :func:`infer_contexts`.
        smoothing: See :func:`pfdl.objectives.weightings.balance.balancing_table`.

    Returns:
        Shape (n,); the mean is 1 within every class, so that the classes keep their frequencies.

    Raises:
        ValueError: If the arrays do not fit.

    Example:
        >>> context_weights([0, 0, 0, 0, 1, 1], ["snow", "snow", "snow", "sea", "snow", "sea"], smoothing=0.0).round(3)
        array([0.667, 0.667, 0.667, 2.   , 1.   , 1.   ])
    """
    y, group = (np.unique(_array(values), return_inverse=True)[1] for values in (labels, contexts))
    if y.ndim != 1 or y.shape != group.shape:
        raise ValueError(f"labels have shape {y.shape} and contexts {group.shape}; both must be (n,).")
    counts = np.zeros((y.max() + 1, group.max() + 1))
    np.add.at(counts, (y, group), 1)
    weights: FloatArray = balancing_table(torch.from_numpy(counts), smoothing).numpy()[y, group]
    return weights


def _array(values: Any) -> NDArray[Any]:
    """Also of a tensor on a GPU."""
    return np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values)


def _check(features: Any, labels: Any) -> tuple[FloatArray, IndexArray]:
    u, given = _array(features).astype(np.float64), _array(labels)
    if u.ndim != 2 or given.shape != u.shape[:1]:
        raise ValueError(f"features have shape {u.shape} and labels {given.shape}; give (n, p) and (n,).")
    if u.shape[1] < 2:
        raise ValueError(f"there are {u.shape[1]} features; one must be predicted from others, so give at least 2.")
    if not np.isfinite(u).all():
        raise ValueError("features have entries that are not finite.")
    _, y = np.unique(given, return_inverse=True)
    return u, y.astype(np.intp)
