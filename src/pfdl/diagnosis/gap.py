"""How far test accuracy lies below validation accuracy, and whether the contexts explain it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pfdl.contexts.groups import GroupAccuracy
from pfdl.diagnosis.shift import ShiftCurve
from pfdl.diagnosis.verdict import ERRORS_SURE, LEAST_DIFFERENCE


@dataclass(frozen=True)
class Gap:
    """Accuracy on validation and on test images, as shares from 0 to 1.

    Attributes:
        validation: On validation images.
        validation_samples: Number of them.
        test: On test images.
        test_samples: Number of them.
        in_training_mixture: On validation images whose contexts are mixed as in training; NaN if it is not known.
    """

    validation: float
    validation_samples: int
    test: float
    test_samples: int
    in_training_mixture: float = float("nan")

    @property
    def difference(self) -> float:
        """Return validation minus test accuracy."""
        return self.validation - self.test

    @property
    def standard_error(self) -> float:
        """Return the standard error of the difference, from the numbers of images."""
        return float(np.hypot(self._validation_error, _error(self.test, self.test_samples)))

    @property
    def _validation_error(self) -> float:
        return _error(self.validation, self.validation_samples)

    @property
    def matters(self) -> bool:
        """Return whether test accuracy is lower by at least 5 points, and by more than two standard errors."""
        return self.difference >= LEAST_DIFFERENCE and self.difference > ERRORS_SURE * self.standard_error

    def sentence(self) -> str:
        """Say it in one line.

        Example:
            >>> Gap(0.805, 200, 0.24, 654).sentence()[:62]
            'Test accuracy is 56.5 ± 3.3 points below validation accuracy: '
        """
        figures = (
            f"{100 * self.validation:.1f} % of {self.validation_samples} validation images, {100 * self.test:.1f} % of "
            f"{self.test_samples} test images."
        )
        if abs(self.difference) <= ERRORS_SURE * self.standard_error:
            return f"Validation and test accuracy are equal within the error: {figures}"
        side = "below" if self.difference > 0 else "above"
        size = f"{100 * abs(self.difference):.1f} ± {100 * self.standard_error:.1f} points"
        differs = " The test images differ from those of training." if self.matters else ""
        return f"Test accuracy is {size} {side} validation accuracy: {figures}{differs}"

    def agrees_with(self, shift: ShiftCurve) -> bool:
        """Return whether what the contexts predict for the training mixture is what validation images show.

        So it is, if the two are less than 5 points apart, or less than two standard errors; and where validation
        images do not show it.
        """
        if np.isnan(self.in_training_mixture):
            return True
        apart = abs(self.in_training_mixture - float(shift.accuracy[0]))
        return apart <= max(
            LEAST_DIFFERENCE, ERRORS_SURE * float(np.hypot(shift.standard_error[0], self._validation_error))
        )

    def forecast(self, shift: ShiftCurve) -> str:
        """Say what to expect if the contexts shift; or that they do not explain the gap."""
        if self.agrees_with(shift):
            return shift.sentence()
        too_low = self.matters and self.in_training_mixture >= shift.accuracy[0]
        return (
            f"{'The contexts explain only part of the gap' if too_low else 'Do not rely on a forecast'}: from these "
            f"contexts one would expect {100 * shift.accuracy[0]:.1f} ± {100 * shift.standard_error[0]:.1f} % right in "
            f"the training mixture, but validation images with it gave {100 * self.in_training_mixture:.1f} %."
        )


def _error(share: float, samples: int) -> float:
    return float(np.sqrt(GroupAccuracy("", "", share, samples).variance))
