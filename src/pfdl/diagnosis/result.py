"""What a diagnosis found, and how to say it in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import numpy as np

from pfdl.contexts._arrays import FloatArray
from pfdl.contexts.groups import Accuracies, GroupAccuracy
from pfdl.diagnosis.shift import ShiftCurve
from pfdl.diagnosis.verdict import CANNOT_TELL, ERRORS_SURE, LEAST_DIFFERENCE, NO, ContextReliance

BALANCED = "no class has a usual context in training"

ONE_SIDED = "all images, or none, show their class in the context that is usual for it in training"

TRAINING_UNKNOWN = "it is not known which contexts went with which class in training"

NO_CONTEXTS = "the images have no contexts, and none could be inferred from them"

NOT_CONFIRMED = "the contexts were inferred and could not be confirmed"

NONE_FOUND = (
    "these images do not show it, and contexts that were inferred may miss the one that matters"
)


@dataclass(frozen=True)
class Gap:
    """Accuracy on validation and on test images, as shares from 0 to 1.

    Attributes:
        validation: On validation images.
        validation_samples: Number of them.
        test: On test images.
        test_samples: Number of them.
        in_training_mixture: On validation images whose contexts are mixed as in training; NaN if it
            is not known.
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
        return float(
            np.hypot(
                _error(self.validation, self.validation_samples),
                _error(self.test, self.test_samples),
            )
        )

    @property
    def matters(self) -> bool:
        """Return whether test accuracy is lower by at least 5 points, and by more than two standard
        errors.
        """
        return (
            self.difference >= LEAST_DIFFERENCE
            and self.difference > ERRORS_SURE * self.standard_error
        )

    def sentence(self) -> str:
        """Say it in one line.

        Example:
            >>> Gap(0.805, 200, 0.24, 654).sentence()[:62]
            'Test accuracy is 56.5 ± 3.3 points below validation accuracy: '
        """
        figures = (
            f"{100 * self.validation:.1f} % of {self.validation_samples} validation images,"
            f" {100 * self.test:.1f} % of {self.test_samples} test images."
        )
        if abs(self.difference) <= ERRORS_SURE * self.standard_error:
            return f"No difference between validation and test accuracy is shown: {figures}"
        side = "below" if self.difference > 0 else "above"
        size = f"{100 * abs(self.difference):.1f} ± {100 * self.standard_error:.1f} points"
        differs = " The test images differ from those of training." if self.matters else ""
        return f"Test accuracy is {size} {side} validation accuracy: {figures}{differs}"

    def agrees_with(self, shift: ShiftCurve) -> bool:
        """Return whether what the contexts predict for the training mixture is what validation
        images show.

        So it is, if the two are less than 5 points apart, or less than two standard errors; and
        where validation images do not show it.
        """
        if np.isnan(self.in_training_mixture):
            return True
        apart = abs(self.in_training_mixture - float(shift.accuracy[0]))
        error = np.hypot(shift.standard_error[0], _error(self.validation, self.validation_samples))
        return apart <= max(LEAST_DIFFERENCE, ERRORS_SURE * float(error))

    def forecast(self, shift: ShiftCurve) -> str:
        """Say what to expect if the contexts shift; or that they do not explain the gap."""
        if self.agrees_with(shift):
            return shift.sentence()
        too_low = self.matters and self.in_training_mixture >= shift.accuracy[0]
        warning = (
            "The contexts explain only part of the gap" if too_low else "Do not rely on a forecast"
        )
        return (
            f"{warning}: from these contexts one would expect {100 * shift.accuracy[0]:.1f} ±"
            f" {100 * shift.standard_error[0]:.1f} % right in the training mixture, but validation"
            f" images with it gave {100 * self.in_training_mixture:.1f} %."
        )


def _none() -> FloatArray:
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Whether a model relies on the context, and how predictable its features are from each other.

    Attributes:
        accuracies: By class, by context and by both; None without predictions.
        reliance: Whether the answers follow the context; None if that cannot be measured.
        shift: What accuracy to expect if the contexts shift; None if that cannot be measured.
        unanswered: Why the answer is "cannot tell" whatever ``reliance`` says; else empty.
        r2: How predictable each feature is from the others by ridge regression, shape (p,): R² on
            samples left out of the fit. 1: fully; 0: not at all; NaN: the feature is constant.
            Empty without features, as is ``r2_within_class``.
        r2_within_class: The same once the mean of each class is taken off, shape (p,); NaN if the
            feature is constant within every class.
        gap: How far test accuracy lies below validation accuracy, if that was measured.
    """

    accuracies: Accuracies | None
    reliance: ContextReliance | None
    shift: ShiftCurve | None
    unanswered: str
    r2: FloatArray = field(default_factory=_none)
    r2_within_class: FloatArray = field(default_factory=_none)
    gap: Gap | None = None

    @property
    def answer(self) -> str:
        """Return whether the model relies on the context: ``"yes"``, ``"no"`` or ``"cannot
        tell"``.
        """
        if self.reliance is None or self.unanswered or self._hides_gap:
            return CANNOT_TELL
        return self.reliance.answer

    @property
    def explains_gap(self) -> bool:
        """Return whether the contexts explain what test accuracy lies below validation accuracy, if
        it does.
        """
        return (
            self.gap is None
            or not self.gap.matters
            or (self.shift is not None and self.gap.agrees_with(self.shift))
        )

    def save(self, path: str | Path) -> Path:
        """Write a page with the verdict, the figures behind it and the forecast, as one HTML file.

        Args:
            path: A name that ends in ``.html``. The page needs ``pfdl[images]``.
        """
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"the page is HTML: give a name that ends in .html, not {path}.")
        # Pages stand above what they show, so this one is loaded when it is asked for
        import_module("pfdl.report.diagnosis_page").save_result(self, path)
        return path

    @property
    def _hides_gap(self) -> bool:
        """Return whether these contexts show nothing, and yet test accuracy is too low."""
        return self.reliance is not None and self.reliance.answer == NO and not self.explains_gap

    def verdict(self) -> tuple[str, ...]:
        """Say what was found in sentences: first whether the model relies on the context, then what
        belongs to it.
        """
        said = [*self._on_reliance()]
        if self.gap is not None:
            said.insert(1, self.gap.sentence())
        if self.reliance is not None and self.shift is not None:
            said.append(
                self.shift.sentence() if self.gap is None else self.gap.forecast(self.shift)
            )
        return (*said, *self._on_accuracy(), *self._on_features())

    def _on_reliance(self) -> tuple[str, ...]:
        begin = "Cannot tell whether the model relies on the context"
        if self.reliance is None or self.unanswered:
            return (f"{begin}: {self.unanswered}.",)
        if self._hides_gap:
            figures = self.reliance.figures()
            return (f"{begin}: not on these contexts ({figures}), and yet test accuracy is low.",)
        return self.reliance.sentences()

    def _on_accuracy(self) -> tuple[str, ...]:
        if self.accuracies is None:
            return ()
        worst = self.accuracies.worst_group
        return (
            (
                f"Accuracy is {_percent(self.accuracies.overall)} on all images; in the worst"
                f" group, {worst.name}, it is {_percent(worst.accuracy)} of {worst.samples} images."
            ),
        )

    def _on_features(self) -> tuple[str, ...]:
        if not len(self.r2):
            return ()
        varying = int(np.sum(~np.isnan(self.r2)))
        if varying < 2:
            return (
                (
                    f"Only {varying} of {len(self.r2)} features vary: there is nothing to predict"
                    " from others."
                ),
            )
        marginal, within = _median(self.r2), _median(self.r2_within_class)
        aside = f"; {len(self.r2) - varying} more are constant" if varying < len(self.r2) else ""
        bounds = ((0.1, "hardly"), (0.5, "partly"), (0.9, "mostly"), (np.inf, "almost fully"))
        how = next(words for bound, words in bounds if marginal < bound)
        inside = "" if np.isnan(within) else f", {within:.2f} within a class"
        return (
            f"Each feature is {how} predictable from the others (median R² {marginal:.2f} of"
            f" {varying} features{inside}{aside}).".replace("-", "−"),
        )


def _percent(share: float) -> str:
    return "more than 99 %" if 0.995 <= share < 1 else f"{100 * share:.0f} %"


def _median(values: FloatArray) -> float:
    # No -0
    return round(float(np.nanmedian(values)), 2) + 0 if np.isfinite(values).any() else float("nan")


def _error(share: float, samples: int) -> float:
    return float(np.sqrt(GroupAccuracy("", "", share, samples).variance))
