"""The finder ``misled``: the classes that a short training mistakes samples for; and the checks
that tell its contexts from hard images and from wrong labels.

All three have samples that a short training takes for another class. Thresholds were set on image
sets with and without a shortcut, with right and with wrong labels (``evidence/shortcuts``):

* In a shortcut, halves of the features are misled alike, and those that are misled stand apart from
  the others of their class. Hard images shade into the others.
* Wrongly labelled samples are what they look like: nothing tells them from the class that they are
  taken for, and balancing them does not help.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from sklearn.mixture import GaussianMixture

from pfdl.contexts._arrays import FloatArray, IndexArray
from pfdl.contexts.finders import Demands, Proposal
from pfdl.contexts.probe import (
    RidgePath,
    equal_classes,
    equal_groups,
    held_out_margins,
    one_thread,
    spread,
)
from pfdl.contexts.sampling import stratified_rows

RIDGE = 10.0
"""A short training: what is easy and frequent is learnt."""

RIDGES_OF_GAIN = (1.0, 10.0, 30.0)

FOLDS = 4

HALVINGS = 5
"""How often the features are halved to see whether both halves are misled alike."""

SPLITS = 2

FITTED = 4000
"""The training is fitted to so many samples; all others are assigned."""

LEAST_AGREEMENT = 0.6
"""Adjusted Rand index within classes of what halves of the features take samples for. On sets with
a shortcut it was mostly 0.6 to 0.9, without 0.4 to 0.7."""

LEAST_APART = 0.08
"""What two modes instead of one add to the log-likelihood of a class's margins, twice, per sample:
with a shortcut mostly 0.1 to 0.6, for hard images mostly below 0.07."""

LEAST_TOLD = 0.7
"""Held-out area under the curve that tells samples from the class that they are taken for: with a
shortcut 0.7 to 0.9, for wrong labels mostly 0.5 to 0.68."""

LEAST_SURE = 1.0
"""Standard errors by which balancing must help; more would cost as much recall as it spares."""

LEAST_MISTAKEN = 8
"""With fewer samples of a pair of classes nothing is told apart."""

STARTS = (0.05, 0.1, 0.2, 0.5)
"""Shares of samples in the lower of two modes that the search for them starts from."""

NARROWEST = 0.15
"""The least width of a mode, as a share of that of all."""

DEMANDS = Demands(agreement=LEAST_AGREEMENT, are_mistakes=True)


def find_misled(features: FloatArray, labels: IndexArray, *, seed: int = 0) -> Proposal:
    """Take the class that a short training on all features mistakes a held-out sample for."""
    rng = np.random.default_rng(seed)
    rows = stratified_rows(labels, FITTED, rng)
    z = features[rows]
    y = labels[rows]
    weight = equal_classes(y, int(y.max()) + 1)
    held_out = held_out_margins(z, y, spread(y, rng, FOLDS), weight, [RIDGE])
    with one_thread():
        fit = RidgePath(z, y, weight, int(y.max()) + 1)

    def assign(z: FloatArray, y: IndexArray) -> IndexArray:
        return np.asarray(fit.scores(z, [RIDGE])[0].argmax(axis=1))

    contexts = assign(features, labels)
    contexts[rows] = held_out.predicted[0]
    return Proposal(
        contexts,
        "The classes that a short training mistakes samples for.",
        stability=_agreement_within_classes(z, y, weight, rng),
        assign=assign,
        demands=DEMANDS,
    )


def _agreement_within_classes(
    z: FloatArray, y: IndexArray, weight: FloatArray, rng: np.random.Generator
) -> float:
    """Return how alike trainings with random halves of the features mistake samples."""
    agreement = []
    for _ in range(HALVINGS):
        fold = spread(y, rng, 2)
        one, other = (
            held_out_margins(z[:, half], y, fold, weight, [RIDGE]).predicted[0]
            for half in np.array_split(rng.permutation(z.shape[1]), 2)
        )
        agreement += [adjusted_rand_score(one[y == k], other[y == k]) for k in np.unique(y)]
    return float(np.mean(agreement))


class Mistakes(NamedTuple):
    """What is measured of the samples that a short training mistakes.

    Attributes:
        apart: How clearly they stand apart from the others of their class.
        told: How well they can be told from the class that they are taken for; NaN if of no pair of
            classes there are enough.
        before: How often a training gets each held-out sample right.
        after: The same where mistaken samples weigh as much as the others of their class.
    """

    apart: float
    told: float
    before: FloatArray
    after: FloatArray


def measure_mistakes(z: FloatArray, y: IndexArray, mistaken: IndexArray, seed: int) -> Mistakes:
    """Measure what tells a shortcut from hard images and wrong labels.

    Args:
        z: Standardised features, shape (n, p).
        y: The classes, shape (n,).
        mistaken: The class that each sample is taken for, shape (n,).
        seed: Seed of the folds.
    """
    rng = np.random.default_rng((seed, 3))
    weight = equal_classes(y, int(y.max()) + 1)
    margins = held_out_margins(z, y, spread(y, rng, FOLDS), weight, [RIDGE]).margins[0]
    apart = max(_two_modes(margins[y == label]) for label in np.unique(y))
    told = _told_from_lookalikes(z, y, mistaken, rng)
    before, after = _trainings(z, y, mistaken != y, rng)
    return Mistakes(apart, told, before, after)


def _two_modes(margins: FloatArray) -> float:
    """Return what two Gaussians instead of one add to the log-likelihood, twice, per sample."""
    values = margins[:, None]
    width = float(margins.std())
    if len(margins) < LEAST_MISTAKEN or width == 0:
        return 0.0
    best = -np.inf
    for share in STARTS:
        below = margins <= np.quantile(margins, share)
        means = [[margins[below].mean()], [margins[~below].mean()]]
        two = GaussianMixture(
            2, means_init=means, reg_covar=(NARROWEST * width) ** 2, random_state=0
        )
        best = max(best, two.fit(values).score(values))
    one = GaussianMixture(1, random_state=0).fit(values).score(values)
    return float(2 * (best - one))


def _told_from_lookalikes(
    z: FloatArray, y: IndexArray, mistaken: IndexArray, rng: np.random.Generator
) -> float:
    """Return the held-out area under the curve that tells samples of one class that are taken for
    another from samples of that other class; the mean over pairs, by their samples.
    """
    areas = []
    sizes = []
    for label in np.unique(y):
        for other in np.unique(y[y != label]):
            taken = np.flatnonzero((y == label) & (mistaken == other))
            right = np.flatnonzero((y == other) & (mistaken == other))
            if len(taken) < LEAST_MISTAKEN or len(right) < LEAST_MISTAKEN:
                continue
            rows = np.concatenate([taken, right])
            target = (np.arange(len(rows)) < len(taken)).astype(np.intp)
            fold = spread(target, rng, FOLDS + 1)
            weight = equal_classes(target, 2)
            margins = held_out_margins(z[rows], target, fold, weight, [RIDGE]).margins[0]
            areas.append(roc_auc_score(target, np.where(target == 1, margins, -margins)))
            sizes.append(len(taken))
    return float(np.average(areas, weights=sizes)) if areas else float("nan")


def _trainings(
    z: FloatArray, y: IndexArray, mistaken: IndexArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return how often a training gets each held-out sample right, plain and with the mistaken ones
    weighing as much as the others of their class, at the ridge where that helps most.
    """
    plain = equal_classes(y, int(y.max()) + 1)
    balanced = equal_groups(y, mistaken.astype(np.intp))
    right = np.zeros((2, len(RIDGES_OF_GAIN), len(y)))
    for _ in range(SPLITS):
        fold = spread(y, rng, 2)
        for row, weight in enumerate((plain, balanced)):
            found = held_out_margins(z, y, fold, weight, RIDGES_OF_GAIN)
            right[row] += (found.predicted == y) / SPLITS
    change = right[1] - right[0]
    best = int(np.argmax(change[:, mistaken].mean(axis=1) + change[:, ~mistaken].mean(axis=1)))
    return right[0, best], right[1, best]
