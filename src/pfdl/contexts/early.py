"""The finder ``early``: the class that a short training predicts is the context, for what is
learnt first goes by the context.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pfdl.contexts._arrays import FloatArray, IndexArray
from pfdl.contexts.finders import Demands, Proposal
from pfdl.contexts.probe import (
    RIDGES,
    RidgePath,
    equal_classes,
    held_out_predictions,
    spread,
)

EQUALLY_STABLE = 0.02
"""Ridges at which halves agree as well within so much are equally good; the largest is taken."""

HALVINGS = 2
"""How often the features are halved to see whether both halves find the same."""

DEMANDS = Demands(agreement=0.8, errors_are_one_group=True)


def find_early(features: FloatArray, labels: IndexArray, *, seed: int = 0) -> Proposal:
    """Take the class that a short training predicts of held-out samples (after SPARE and JTT).

    The stability is the share, of the samples on which the training with either half of the
    features errs, on which both give the same wrong class. A context that moves many features
    misleads a training with any half of them to the same wrong class. On samples that are merely
    hard, or wrongly labelled, the halves go wrong differently.
    """
    training = ShortTraining.fit(features, labels, np.random.default_rng(seed))
    return Proposal(
        training.predicted,
        "The classes that a short training predicts.",
        stability=training.agreement,
        assign=training.predict,
        demands=DEMANDS,
    )


@dataclass(frozen=True, eq=False)
class ShortTraining:
    """Linear classifiers under the ridge at which halves of the features agree best on what is
    wrong.

    Attributes:
        predicted: The class of each sample by the fit to the others, shape (n,).
        agreement: How well halves of the features agree on what is wrong.
        fits: The fits to the complement of each fold.
        ridge: The ridge that is taken.
    """

    predicted: IndexArray
    agreement: float
    fits: list[RidgePath]
    ridge: float

    @classmethod
    def fit(cls, z: FloatArray, y: IndexArray, rng: np.random.Generator) -> ShortTraining:
        """Train with all features and with halves of them."""
        classes = int(y.max()) + 1
        weight = equal_classes(y, classes)
        fold = spread(y, rng)
        predicted, fits = held_out_predictions(z, y, fold, weight, classes)
        agreement = np.zeros(len(RIDGES))
        for _ in range(HALVINGS):
            first, second = np.array_split(rng.permutation(z.shape[1]), 2)
            one, _ = held_out_predictions(z[:, first], y, fold, weight, classes)
            other, _ = held_out_predictions(z[:, second], y, fold, weight, classes)
            agreement += _same_errors(one, other, y) / HALVINGS
        equal = np.flatnonzero(agreement >= agreement.max() - EQUALLY_STABLE)
        best = int(equal[-1])
        return cls(predicted[best], float(agreement[best]), fits, RIDGES[best])

    def predict(self, z: FloatArray, y: IndexArray) -> IndexArray:
        """Predict other samples by all fits together; their classes play no part."""
        scores = np.sum([fit.scores(z, [self.ridge])[0] for fit in self.fits], axis=0)
        return np.asarray(scores.argmax(axis=1))


def _same_errors(one: IndexArray, other: IndexArray, y: IndexArray) -> FloatArray:
    """Return for each ridge the share, of what either gets wrong, that both get wrong alike."""
    same = (one == other) & (one != y)
    either = (one != y) | (other != y)
    return np.asarray(same.sum(axis=1) / either.sum(axis=1).clip(min=1))
