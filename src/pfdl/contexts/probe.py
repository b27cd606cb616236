"""A short training in closed form: linear classifiers by ridge regression, held out, at many
strengths at once.

A strong ridge has the effect of stopping early: what is easy and frequent is learnt, what is rare
is not. So a last layer under a ridge on fixed features plays a part like that of the briefly
trained networks of JTT and SPARE, without a step size, a number of epochs or chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

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


class LeftOut:
    """Predict each sample by ridge fits to all others, in closed form, by one inverse each.

    Args:
        z: Features of variance about 1, shape (n, p).
    """

    def __init__(self, z: FloatArray) -> None:
        self._z = z
        self._gram = z @ z.T if z.shape[0] <= z.shape[1] else None

    def among(self, rows: IndexArray) -> LeftOut:
        """Return the same of some samples alone."""
        return LeftOut(self._z[rows])

    def scores(
        self,
        target: FloatArray,
        weight: FloatArray,
        ridge: float,
        of_class: IndexArray | None = None,
    ) -> FloatArray:
        """Predict a target by a fit without the sample.

        The weighted residuals of the fit to all samples, divided by one minus the leverage of a
        sample, are those of the fit without it.

        Args:
            target: What is predicted, shape (n, k).
            weight: One weight per sample, shape (n,).
            ridge: The penalty, as in :class:`RidgePath`.
            of_class: The classes, shape (n,), if each has a mean of its own: then what is predicted
                differs within classes.

        Returns:
            Predictions, shape (n, k).
        """
        block = np.zeros(len(self._z), dtype=np.intp) if of_class is None else of_class
        share = weight / weight.sum()
        own = share / np.bincount(block, share)[block]
        mean = np.eye(int(block.max()) + 1)[block].T * own
        root = np.sqrt(share)[:, None]
        weighted = root * (target - (mean @ target)[block])
        with one_thread():
            residual, free = self._residuals(weighted, root, mean, block, ridge)
        left = residual / (free - own).clip(min=ZERO)[:, None]
        return np.asarray(target - left / root)

    def _residuals(
        self,
        target: FloatArray,
        root: FloatArray,
        mean: FloatArray,
        block: IndexArray,
        ridge: float,
    ) -> tuple[FloatArray, FloatArray]:
        """Return the residuals of a fit without levels, and one minus the leverages, by the smaller
        of the two squares of the matrix.
        """
        if self._gram is None:
            x = root * (self._z - (mean @ self._z)[block])
            inverse = np.linalg.inv(x.T @ x + ridge * np.eye(x.shape[1]))
            pulled = x @ inverse
            leverage = (pulled * x).sum(axis=1)
            return target - pulled @ (x.T @ target), 1 - leverage
        of_mean = mean @ self._gram
        levels = (of_mean @ mean.T)[block][:, block]
        centred = self._gram - of_mean[block] - of_mean.T[:, block] + levels
        weighted = root * centred * root.T
        inverse = np.linalg.inv(weighted + ridge * np.eye(len(root)))
        return ridge * (inverse @ target), ridge * np.diag(inverse)


def margins_of(scores: FloatArray, y: IndexArray) -> tuple[FloatArray, IndexArray]:
    """Return the score of each sample's own class less the largest of the others, and which."""
    rows = np.arange(len(y))
    others = scores.copy()
    others[rows, y] = -np.inf
    rival = others.argmax(axis=1)
    return scores[rows, y] - others[rows, rival], rival
