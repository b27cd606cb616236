"""A short training in closed form: linear classifiers by ridge regression, held out, at many
strengths at once.

A strong ridge has the effect of stopping early: what is easy and frequent is learnt, what is rare
is not. So a last layer under a ridge on fixed features plays a part like that of the briefly
trained networks of JTT and SPARE, without a step size, a number of epochs or chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController  # scikit-learn brings it

from pfdl.contexts._arrays import FloatArray, IndexArray, group_table

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Penalties on features of variance 1, from a long to a short training."""

FOLDS = 2

ZERO = 1e-12
"""A variance below this share of the largest is rounding."""

_libraries = cache(ThreadpoolController)  # looked for once: that takes longer than many a fit


def one_thread() -> Any:
    """Let linear algebra run on one thread: for small matrices, others mostly wait."""
    return _libraries().limit(limits=1)


class RidgePath:
    """Least squares from features to classes, with weights, for every ridge by one decomposition.

    Args:
        z: Features of variance about 1, shape (n, p).
        y: The classes, shape (n,).
        weight: One weight per sample, shape (n,).
        classes: Number of classes.
    """

    def __init__(self, z: FloatArray, y: IndexArray, weight: FloatArray, classes: int) -> None:
        share = weight / weight.sum()
        target = np.zeros((len(z), classes))
        target[np.arange(len(z)), y] = 1.0
        self._mean = share @ z
        self._level = share @ target
        root = np.sqrt(share)[:, None]
        centred = (z - self._mean) * root
        moments = centred.T @ ((target - self._level) * root)
        self._values, self._vectors = _principal_axes(centred)
        self._moments = self._vectors.T @ moments

    def scores(self, z: FloatArray, ridges: Sequence[float] = RIDGES) -> FloatArray:
        """Return the scores of all classes for every ridge, shape (ridges, n, classes)."""
        strengths = self._values.clip(min=0.0) + np.array(ridges)[:, None]
        coefficients = self._vectors @ (self._moments / strengths[:, :, None])
        return np.asarray(
            np.matmul(z, coefficients) + (self._level - self._mean @ coefficients)[:, None]
        )


def _principal_axes(centred: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return variances and directions, shapes (r,) and (p, r), of all that varies.

    They follow from the smaller of the two squares of the matrix.
    """
    if centred.shape[0] >= centred.shape[1]:
        return np.linalg.eigh(centred.T @ centred)
    values, by_sample = np.linalg.eigh(centred @ centred.T)
    varying = values > values[-1] * ZERO
    directions = centred.T @ by_sample[:, varying]
    return values[varying], directions / np.sqrt(values[varying])


def equal_classes(y: IndexArray, classes: int) -> FloatArray:
    """Return weights under which all classes count the same."""
    return np.asarray(1.0 / np.bincount(y, minlength=classes).clip(min=1))[y]


def equal_groups(y: IndexArray, context: IndexArray) -> FloatArray:
    """Return weights under which all classes count the same, and in a class all contexts that it
    has.
    """
    counts = group_table(y, context)
    held = (counts > 0).sum(axis=1).clip(min=1)
    return np.asarray(1.0 / (counts.clip(min=1) * held[:, None]))[y, context]


def spread(group: IndexArray, rng: np.random.Generator, folds: int = FOLDS) -> IndexArray:
    """Return a fold for each sample, such that the folds share every group as evenly as can be."""
    order = rng.permutation(len(group))
    order = order[np.argsort(group[order], kind="stable")]
    fold = np.empty(len(group), dtype=np.intp)
    fold[order] = np.arange(len(group)) % folds
    return fold


def held_out_predictions(
    z: FloatArray, y: IndexArray, fold: IndexArray, weight: FloatArray, classes: int
) -> tuple[IndexArray, list[RidgePath]]:
    """Predict every sample by a fit to the other fold.

    Returns:
        The predicted classes, shape (ridges, n), and the fit to the complement of each fold.
    """
    predicted = np.empty((len(RIDGES), len(y)), dtype=np.intp)
    fits = list[RidgePath]()
    with one_thread():
        for number in range(FOLDS):
            held = fold == number
            fits.append(RidgePath(z[~held], y[~held], weight[~held], classes))
            predicted[:, held] = fits[-1].scores(z[held]).argmax(axis=2)
    return predicted, fits


class HeldOut(NamedTuple):
    """What trainings say of the samples that were left out of them.

    Attributes:
        predicted: The classes, shape (ridges, n).
        margins: The score of the own class less the largest of the others, shape (ridges, n).
    """

    predicted: IndexArray
    margins: FloatArray


def held_out_margins(
    z: FloatArray,
    y: IndexArray,
    fold: IndexArray,
    weight: FloatArray,
    ridges: Sequence[float],
) -> HeldOut:
    """Predict every sample by a fit to the other folds, and say by how much it is right."""
    classes = int(y.max()) + 1
    predicted = np.empty((len(ridges), len(y)), dtype=np.intp)
    margins = np.empty((len(ridges), len(y)))
    with one_thread():
        for number in np.unique(fold):
            held = np.flatnonzero(fold == number)
            rest = np.flatnonzero(fold != number)
            scores = RidgePath(z[rest], y[rest], weight[rest], classes).scores(z[held], ridges)
            predicted[:, held] = scores.argmax(axis=2)
            own = scores[:, np.arange(len(held)), y[held]]
            scores[:, np.arange(len(held)), y[held]] = -np.inf
            margins[:, held] = own - scores.max(axis=2)
    return HeldOut(predicted, margins)
