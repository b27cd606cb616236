"""The label as a handful of functions, on which a linear regression captures what a column owes to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

_RANK_TOLERANCE = 1e-7


def number_functions(y: ArrayLike) -> FloatArray:
    """Return y and its hinges at the quartiles, orthonormal, as functions of a numeric label.

    Piecewise linear rather than powers of y, because one outlying label would rule a cubic. A constant label has none.
    """
    numbers: FloatArray = np.asarray(y, dtype=np.float64)
    low, spread = numbers.min(), numbers.max() - numbers.min()
    if spread == 0:
        return np.empty((len(numbers), 0))
    numbers = (numbers - low) / spread
    hinges = [np.maximum(numbers - quartile, 0.0) for quartile in np.quantile(numbers, [0.25, 0.5, 0.75])]
    return _orthonormal(np.column_stack([numbers, *hinges]))


def class_functions(codes: NDArray[np.intp], num_classes: int) -> FloatArray:
    """Return the indicator of each class but one, orthonormal; a single class has none."""
    return _orthonormal(np.eye(num_classes)[codes][:, 1:])


def _orthonormal(functions: FloatArray) -> FloatArray:
    """Make functions centred, uncorrelated and of variance 1; leave out directions that hold nothing."""
    if not functions.shape[1]:
        return functions
    functions = functions - functions.mean(axis=0)
    functions = functions / np.maximum(functions.std(axis=0), np.finfo(float).tiny)
    values, vectors = np.linalg.eigh(functions.T @ functions / len(functions))
    held = values > _RANK_TOLERANCE * max(values[-1], np.finfo(float).tiny)
    result: FloatArray = functions @ (vectors[:, held] / np.sqrt(values[held]))
    return result
