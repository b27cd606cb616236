"""The label as a handful of functions, on which a linear regression captures what a column owes to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

_RANK_TOLERANCE = 1e-4


def number_functions(y: ArrayLike) -> FloatArray:
    """Return y and its hinges at the quartiles, orthonormal, as functions of a numeric label; the first is y itself.

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
    """Make functions centred, uncorrelated and of variance 1, one after the other; leave out those that add nothing."""
    found: list[FloatArray] = []
    for function in functions.T:
        rest = function - function.mean()
        length = np.sqrt(rest @ rest)
        for _ in range(2):  # once more, against rounding
            for other in found:
                rest = rest - (rest @ other) / len(rest) * other
        remaining = np.sqrt(rest @ rest)
        if remaining > _RANK_TOLERANCE * length:
            found.append(rest * (np.sqrt(len(rest)) / remaining))
    return np.column_stack(found) if found else np.empty((len(functions), 0))
