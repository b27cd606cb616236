"""What accuracy to expect if the contexts shift, from the accuracies of the groups alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pfdl.contexts._arrays import FloatArray
from pfdl.contexts.groups import GroupAccuracy, Mixture

POINTS = 21
"""Places on the curve; an odd number, so that one of them is in the middle."""


@dataclass(frozen=True, eq=False)
class ShiftCurve:
    """Accuracy against a shift of the contexts, shape (points,) each.

    Attributes:
        shift: From 0 (the training mixture) over 0.5 (all contexts of a class equally frequent) to
            1 (the mixture reversed).
        accuracy: What to expect there, from 0 to 1.
        standard_error: Standard error of the accuracy, from the number of test images; another
            training varies more.
    """

    shift: FloatArray
    accuracy: FloatArray
    standard_error: FloatArray

    def sentence(self) -> str:
        """Say it in words."""
        begin, middle, end = (self._at(place) for place in (0, len(self.shift) // 2, -1))
        return (
            f"If the contexts shift, expect {begin} right in the training mixture, {middle} if a"
            f" class stands in all its contexts equally often, and {end} if the mixture is reversed"
            " (± one standard error)."
        )

    def _at(self, place: int) -> str:
        return f"{100 * self.accuracy[place]:.1f} ± {100 * self.standard_error[place]:.1f} %"


def accuracy_under_shift(groups: Sequence[GroupAccuracy], training: Mixture) -> ShiftCurve:
    """Predict the accuracy of a model if contexts become more or less frequent.

    The accuracy in each group stays; only the groups' shares change. A context that has the share π
    in the training images of a class gets a share proportional to π^t, with t from 1 (training)
    over 0 (all contexts equally frequent) to −1 (reversed: what was five times as frequent is a
    fifth as frequent, as in NICO's test sets from 5:1 to 1:5). The classes keep their shares. A
    group that was never trained on counts as if it had one training image.

    Args:
        groups: Accuracy and number of test images of every group, as
            :func:`pfdl.diagnosis.measure_accuracy` gives.
        training: Number of training images of every group (not shares), as
            :func:`pfdl.diagnosis.count_groups` gives.

    Returns:
        The curve, with its standard error.

    Raises:
        ValueError: If no class of the groups was trained on, or ``training`` does not hold numbers
            of images.

    Example:
        >>> groups = [
        ...     GroupAccuracy("cow", "grass", 0.9, 100),
        ...     GroupAccuracy("cow", "sand", 0.3, 100),
        ...     GroupAccuracy("camel", "sand", 0.9, 100),
        ...     GroupAccuracy("camel", "grass", 0.5, 100),
        ... ]
        >>> training = {
        ...     ("cow", "grass"): 90,
        ...     ("cow", "sand"): 10,
        ...     ("camel", "sand"): 90,
        ...     ("camel", "grass"): 10,
        ... }
        >>> accuracy_under_shift(groups, training).accuracy[[0, 10, 20]].round(2)
        array([0.85, 0.65, 0.45])
    """
    _check_counts(training)
    tested: dict[Any, list[GroupAccuracy]] = defaultdict(list)
    for group in groups:
        tested[group.label].append(group)
    totals = dict.fromkeys(tested, 0.0)
    for (label, _), count in training.items():
        if label in totals:
            totals[label] += count
    everything = sum(totals.values())
    if not everything:
        raise ValueError(
            "none of the tested classes is among the training images; compare the names of the"
            " classes."
        )
    exponent = np.linspace(1, -1, POINTS)
    accuracy = np.zeros(POINTS)
    variance = np.zeros(POINTS)
    for label, members in tested.items():
        weight = totals[label] / everything
        counts = [max(training.get((label, group.context), 0.0), 1.0) for group in members]
        shares = _shares(np.array(counts), exponent)
        accuracy += weight * shares @ np.array([group.accuracy for group in members])
        variance += weight**2 * shares**2 @ np.array([group.variance for group in members])
    return ShiftCurve((1 - exponent) / 2, accuracy, np.sqrt(variance))


def _check_counts(training: Mixture) -> None:
    counts = np.array(list(training.values()), dtype=float)
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise ValueError("training holds a negative or infinite number of images.")
    if 0 < counts.sum() <= 1:
        raise ValueError("training holds shares; give the number of training images of each group.")


def _shares(counts: FloatArray, exponent: FloatArray) -> FloatArray:
    """Return the share of each context at each exponent, shape (exponents, contexts)."""
    power = exponent[:, None] * np.log(counts / counts.max())
    shares = np.exp(power - power.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
