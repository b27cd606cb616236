"""The finder ``misled``: in each class the samples whose context is that of another class.

A short training takes some of them for the other class. What they share is then learnt from all
features within classes, each sample is asked whether it has it, and each class falls into two
modes; again, until no sample changes. Where no context goes with the class, this ends at some other
difference between images, which all classes have as often: so how much contexts go with the class
tells a shortcut from hard images. Thresholds were set on image sets with and without a shortcut,
with right and with wrong labels (``evidence/shortcuts``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from pfdl.contexts._arrays import FloatArray, IndexArray, group_table
from pfdl.contexts.finders import Demands, Proposal
from pfdl.contexts.probe import (
    LeftOut,
    RidgePath,
    equal_classes,
    equal_groups,
    margins_of,
)
from pfdl.contexts.sampling import stratified_rows

RIDGE = 10.0
"""A short training: what is easy and frequent is learnt."""

RIDGES_OF_CONTEXT = (3.0, 100.0)
"""By the first, contexts stay near what misleads the training; by the second they go where images
differ most, which finds more of a context that fills the image."""

RIDGES_OF_GAIN = (3.0, 10.0, 30.0)
"""From a longer to a short training."""

FITTED = 1500
"""Contexts are sought in so many samples; all others are assigned."""

MOST_TURNS = 15
SETTLED = 0.5
"""Turns end when the probabilities of all samples together change by no more than this."""

STARTS = (0.04, 0.1, 0.25, 0.5)
"""Shares of samples in the lower of two modes that the search for them starts from."""

MODE_TURNS = 60
NARROWEST = 0.2
"""The least width of a mode, as a share of that of all."""

LEAST_GROUP = 5
"""With fewer samples of a class in the context of another nothing can be told or balanced."""

LEAST_ASSOCIATION = 0.6
"""Cramér's V of context and class: about four of five samples of a class in its usual context. At
ten of eleven it is 0.82. Without a shortcut it mostly ended below 0.5."""

LEAST_SHARED = 0.9
"""Area under the curve with which what tells a context in all other classes tells it in one: with a
shortcut 0.95 to 1; for kinds of single classes, which look alike by chance, 0.5 to 0.8."""

LITTLE = 1e-9
"""The weight of samples that take no part in a fit but are predicted by it."""

LEAST_TOLD = 0.65
"""Left-out area under the curve that tells samples from the class that they are taken for: with a
shortcut 0.75 to 1, for wrong labels 0.45 to 0.6."""

MISLED_TIMES = 2.0
LEAST_MISLED = 0.05
"""So many times as often, and in so many more of the samples, even the longer training must err in
the context of another class: where the class is easy to see, only the shortest is misled."""

MOST_COST = 0.15
"""What balancing may cost left-out samples in usual groups: with a shortcut mostly 0 to 0.1, for
wrong labels 0.1 to 0.3."""

LEAST_SURE = 2.0
"""Standard errors by which balancing must help."""

DEMANDS = Demands(agreement=None, are_mistakes=True)


class Modes(NamedTuple):
    """Two normal distributions of the same width.

    Attributes:
        low: The mean of the lower.
        high: That of the higher.
        width: The standard deviation.
        share: The share of samples in the lower.
    """

    low: float
    high: float
    width: float
    share: float

    def probability_low(self, values: FloatArray) -> FloatArray:
        """Return the probability that each value is of the lower mode."""
        log_odds = np.log(self.share / (1 - self.share)) + (
            (values - self.high) ** 2 - (values - self.low) ** 2
        ) / (2 * self.width**2)
        return np.asarray(1 / (1 + np.exp(-log_odds.clip(-50, 50))))

    def likelihood(self, values: FloatArray) -> float:
        """Return the log-likelihood, but for a constant."""
        parts = [
            np.log(share) - (values - mean) ** 2 / (2 * self.width**2)
            for mean, share in ((self.low, self.share), (self.high, 1 - self.share))
        ]
        return float((np.logaddexp(*parts) - np.log(self.width)).sum())


def find_misled(features: FloatArray, labels: IndexArray, *, seed: int = 0) -> Proposal:
    """Take samples that stand apart like those that a short training mistakes, as in the context of
    the class they are taken for.
    """
    rows = stratified_rows(labels, FITTED, np.random.default_rng(seed))
    z, y = features[rows], labels[rows]
    fits = LeftOut(z)
    near, far = (seek(fits, y, ridge) for ridge in RIDGES_OF_CONTEXT)
    found = far if association(y, far) >= LEAST_ASSOCIATION else near

    def assign(z: FloatArray, y: IndexArray) -> IndexArray:
        return _assign(features[rows], labels[rows], found, z, y)

    contexts = labels.copy()
    if len(rows) < len(labels):
        contexts = assign(features, labels)
    contexts[rows] = found
    return Proposal(
        contexts,
        "Samples that stand apart like those that a short training mistakes for another class.",
        stability=float("nan"),
        assign=assign,
        demands=DEMANDS,
    )


def seek(fits: LeftOut, y: IndexArray, ridge: float) -> IndexArray:
    """Return for each sample the class whose context it is in, its own for most.

    Args:
        fits: Of the standardised features.
        y: The classes, shape (n,).
        ridge: Of the fits that tell contexts.
    """
    classes = int(y.max()) + 1
    scores = fits.scores(np.eye(classes)[y], equal_classes(y, classes), RIDGE)
    before = np.full(len(y), np.inf)
    for _ in range(MOST_TURNS):
        margins, rival = margins_of(scores, y)
        apart = _probability_apart(margins, y)
        if np.abs(apart - before).sum() <= SETTLED:
            break
        before = apart
        target = (1 - apart)[:, None] * np.eye(classes)[y] + apart[:, None] * np.eye(classes)[rival]
        scores = fits.scores(target, _equal_modes(apart, y), ridge, y)
    return _without_strays(np.where(apart > 0.5, rival, y), y)


def association(y: IndexArray, context: IndexArray) -> float:
    """Return Cramér's V of class and context."""
    from pfdl.contexts.confirmation import cramers_v

    return cramers_v(group_table(y, context))[0]


def _probability_apart(margins: FloatArray, y: IndexArray) -> FloatArray:
    """Return the probability that a sample is of the lower mode of its class."""
    apart = np.zeros(len(y))
    for label in np.unique(y):
        mine = y == label
        if (modes := two_modes(margins[mine])) is not None:
            apart[mine] = modes.probability_low(margins[mine])
    return apart


def two_modes(values: FloatArray) -> Modes | None:
    """Fit two modes of the same width; None for too few values or values that are all the same."""
    spread = float(values.std())
    if len(values) < 2 * LEAST_GROUP or spread == 0:
        return None
    fits = [_two_modes_from(values, share, NARROWEST * spread) for share in STARTS]
    return max(
        (fit for fit in fits if fit is not None),
        key=lambda fit: fit.likelihood(values),
        default=None,
    )


def _two_modes_from(values: FloatArray, share: float, narrowest: float) -> Modes | None:
    """Fit two modes from the lowest values as a first guess of the lower; None where it empties."""
    low = (values <= np.quantile(values, share)).astype(np.float64)
    modes = None
    for _ in range(MODE_TURNS):
        number = low.sum()
        if not 0.5 < number < len(values) - 0.5:
            return None
        means = (low @ values / number, (1 - low) @ values / (len(values) - number))
        squares = low @ (values - means[0]) ** 2 + (1 - low) @ (values - means[1]) ** 2
        width = max(float(np.sqrt(squares / len(values))), narrowest)
        modes = Modes(float(means[0]), float(means[1]), width, float(number / len(values)))
        low = modes.probability_low(values)
    return modes


def _equal_modes(apart: FloatArray, y: IndexArray) -> FloatArray:
    """Return weights under which both modes of each class count the same, if they have a sample."""
    weight = np.empty(len(y))
    for label in np.unique(y):
        mine = y == label
        low = apart[mine]
        high = 1 - low
        weight[mine] = low / max(low.sum(), 1.0) + high / max(high.sum(), 1.0)
    return weight


def _without_strays(contexts: IndexArray, y: IndexArray) -> IndexArray:
    """Put the few of a class in one context of another class into the most frequent of these; a
    class with too few in all of them stays in its own.
    """
    counts = group_table(y, contexts)
    np.fill_diagonal(counts, 0)
    usual = np.arange(len(counts))
    most = np.where(counts.sum(axis=1) >= LEAST_GROUP, counts.argmax(axis=1), usual)
    stray = (counts[y, contexts] < LEAST_GROUP) & (contexts != y)
    return np.where(stray, most[y], contexts)


def _assign(
    fitted: FloatArray, of_fitted: IndexArray, contexts: IndexArray, z: FloatArray, y: IndexArray
) -> IndexArray:
    """Return the contexts of other samples by a fit to those of these, within classes."""
    weight = equal_groups(of_fitted, contexts)
    classes = int(of_fitted.max()) + 1
    members = np.eye(classes)[of_fitted].T * weight
    means = members @ fitted / members.sum(axis=1).clip(min=1e-12)[:, None]
    fit = RidgePath(fitted - means[of_fitted], contexts, weight, classes)
    return np.asarray(fit.scores(z - means[y], [RIDGE])[0].argmax(axis=1))


class Mistakes(NamedTuple):
    """What is measured of samples in the context of another class.

    Attributes:
        shared: How well what tells a context in all other classes tells it in one; NaN if no class
            has enough samples in the context of another.
        told: How well they can be told from the class that they are taken for; NaN if of no pair of
            classes there are enough.
        missed: The share that the longer training gets wrong of samples in the context of another
            class.
        missed_usual: The same of the others.
        before: Whether a training gets each sample that it has not seen right, at the ridge where
            balancing helps most.
        after: The same where all groups weigh the same.
    """

    shared: float
    told: float
    missed: float
    missed_usual: float
    before: NDArray[np.bool_]
    after: NDArray[np.bool_]


def measure_mistakes(z: FloatArray, y: IndexArray, context: IndexArray) -> Mistakes:
    """Measure what tells a shortcut from hard images and wrong labels.

    Args:
        z: Standardised features, shape (n, p).
        y: The classes, shape (n,).
        context: The class whose context each sample is in, shape (n,).
    """
    fits = LeftOut(z)
    right = _trainings(fits, y, context)
    elsewhere = context != y
    change = right[:, 1].astype(np.float64) - right[:, 0]
    gains = change[:, elsewhere].mean(axis=1) + change[:, ~elsewhere].mean(axis=1)
    best = int(np.argmax(gains))
    return Mistakes(
        shared=_shared_by_classes(fits, y, context),
        told=_told_from_lookalikes(fits, y, context),
        missed=1 - float(right[0, 0, elsewhere].mean()),
        missed_usual=1 - float(right[0, 0, ~elsewhere].mean()),
        before=right[best, 0],
        after=right[best, 1],
    )


def _shared_by_classes(fits: LeftOut, y: IndexArray, context: IndexArray) -> float:
    """Return the area under the curve that tells the contexts within a class by a fit to all other
    classes; the mean over pairs of classes, by their samples in the context of another.
    """
    classes = np.unique(y)
    target = np.eye(int(y.max()) + 1)[context]
    weight = equal_groups(y, context)
    areas = []
    sizes = []
    for label in classes:
        mine = y == label
        scores = fits.scores(target, np.where(mine, LITTLE, weight), RIDGE, y)[mine]
        for other in classes[classes != label]:
            kept = np.isin(context[mine], [label, other])
            there = context[mine][kept] == other
            if min(there.sum(), (~there).sum()) < LEAST_GROUP:
                continue
            areas.append(roc_auc_score(there, (scores[:, other] - scores[:, label])[kept]))
            sizes.append(int(there.sum()))
    return float(np.average(areas, weights=sizes)) if areas else float("nan")


def _told_from_lookalikes(fits: LeftOut, y: IndexArray, context: IndexArray) -> float:
    """Return the left-out area under the curve that tells samples of one class in the context of
    another from samples of that other class; the mean over pairs, by their samples.
    """
    areas = []
    sizes = []
    for label in np.unique(y):
        for other in np.unique(y[y != label]):
            taken = np.flatnonzero((y == label) & (context == other))
            right = np.flatnonzero((y == other) & (context == other))
            if min(len(taken), len(right)) < LEAST_GROUP:
                continue
            rows = np.concatenate([taken, right])
            is_taken = (np.arange(len(rows)) < len(taken)).astype(np.intp)
            scores = fits.among(rows).scores(
                is_taken[:, None].astype(np.float64), equal_classes(is_taken, 2), RIDGE
            )
            areas.append(roc_auc_score(is_taken, scores[:, 0]))
            sizes.append(len(taken))
    return float(np.average(areas, weights=sizes)) if areas else float("nan")


def _trainings(fits: LeftOut, y: IndexArray, context: IndexArray) -> NDArray[np.bool_]:
    """Return whether trainings get each sample that they have not seen right, for each ridge, plain
    and with all groups weighing the same, shape (ridges, 2, n).
    """
    target = np.eye(int(y.max()) + 1)[y]
    plain = equal_classes(y, target.shape[1])
    balanced = equal_groups(y, context)
    right = []
    for ridge in RIDGES_OF_GAIN:
        before = fits.scores(target, plain, ridge).argmax(axis=1)
        after = fits.scores(target, balanced, ridge).argmax(axis=1)
        right.append([before == y, after == y])
    return np.array(right)
