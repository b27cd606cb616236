"""What is said of a model's reliance on the context: the figures, the answer and the sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pfdl.contexts.groups import name_class, name_context

YES, NO, CANNOT_TELL = "yes", "no", "cannot tell"

LEAST_DIFFERENCE = 0.05
"""A difference of accuracy below this counts as none."""

ERRORS_SURE = 2.0
"""Standard errors by which a difference must be away from a limit."""


FEW = 30
"""A verdict that rests on fewer images outside usual contexts says so."""


@dataclass(frozen=True)
class ClassReliance:
    """One class: its usual context, and its accuracy there and elsewhere; NaN where there are no
    images; and how many there are elsewhere.
    """

    label: Any
    usual_context: Any
    in_usual: float
    elsewhere: float
    samples_elsewhere: int = 0

    @property
    def loss(self) -> float:
        """Return what is lost outside the usual context."""
        return self.in_usual - self.elsewhere


@dataclass(frozen=True)
class ContextReliance:
    """Whether the answers of a model follow the context. Shares from 0 to 1.

    The usual context of a class is the one that goes with it in training.

    Attributes:
        in_usual: Accuracy on images of a class in its usual context.
        elsewhere: Accuracy on all other images.
        standard_error: Standard error of the difference of the two.
        effect: The part of the difference that is left when each class and each context may be hard
            in itself: the coefficient of "in the usual context" in a least-squares fit with those
            of class and context. This decides the answer. Where each context shows one class only,
            nothing can be allowed for, and it is the plain difference. NaN if all classes have the
            same usual context, so that nothing goes with a class.
        effect_error: Its standard error.
        separable: Whether hard classes and contexts could be allowed for.
        by_class: Each class, the largest loss first.
        samples_elsewhere: Number of images outside the usual context.
    """

    in_usual: float
    elsewhere: float
    standard_error: float
    effect: float
    effect_error: float
    separable: bool
    by_class: tuple[ClassReliance, ...]
    samples_elsewhere: int

    @property
    def usual_contexts(self) -> dict[Any, Any]:
        """Return the context that goes with each class in training."""
        return {one.label: one.usual_context for one in self.by_class}

    @property
    def difference(self) -> float:
        """Return the accuracy in the usual context minus accuracy elsewhere."""
        return self.in_usual - self.elsewhere

    @property
    def answer(self) -> str:
        """Return ``"yes"``, ``"no"`` or ``"cannot tell"``.

        Yes: the effect is at least 5 points and more than two standard errors above 0. No: it lies
        more than two standard errors below 5 points, and not 5 points below 0: a model that does
        better outside the usual contexts was trained on others than was said. Where all classes
        have the same usual context, the answer could never be yes, and so it is never no.
        """
        margin = ERRORS_SURE * self.effect_error
        if np.isnan(self.effect) or self.is_reversed:
            return CANNOT_TELL
        if self.effect >= LEAST_DIFFERENCE and self.effect > margin:
            return YES
        return NO if self.effect + margin < LEAST_DIFFERENCE else CANNOT_TELL

    @property
    def is_reversed(self) -> bool:
        """Return whether the model does better outside the usual contexts, by at least 5 points."""
        return self.effect <= -LEAST_DIFFERENCE

    def figures(self) -> str:
        """Say what the answer rests on, as a part of a sentence."""
        said = (
            f"{100 * self.in_usual:.0f} % right in a class's usual context,"
            f" {100 * self.elsewhere:.0f} % elsewhere (difference"
            f" {_points(self.difference, self.standard_error)})"
        )
        if abs(self.effect - self.difference) <= self.effect_error or np.isnan(self.effect):
            return said
        return (
            f"{said}; {_points(self.effect, self.effect_error)} once hard classes and contexts are"
            " allowed for"
        )

    def sentences(self) -> tuple[str, ...]:
        """Say what was found: first the answer, then what supports it."""
        figures = self.figures()
        if self.answer == YES:
            doubt = (
                "Each context shows one class only, so contexts that are hard in themselves may be"
                " the cause."
            )
            few = (
                f"It rests on {self.samples_elsewhere} images outside usual contexts: look at them."
            )
            said = f"Yes, the model relies on the context: {figures}."
            doubts = [] if self.separable else [doubt]
            if self.samples_elsewhere < FEW:
                doubts.append(few)
            return (said, *doubts, *self._who())
        if self.answer == NO:
            return (
                (
                    f"No, the model does not rely on the context: {figures}. Less than "
                    f"{100 * LEAST_DIFFERENCE:.0f} points count as none."
                ),
            )
        begin = f"Cannot tell whether the model relies on the context: {figures}"
        if np.isnan(self.effect):
            return (
                (
                    f"{begin}, but no two classes have different usual contexts in training, so"
                    " that a model that relies on them and contexts that are harder for every"
                    " model look the same."
                ),
            )
        if self.is_reversed:
            return (
                (
                    f"{begin}. It does better outside the contexts that are said to be usual"
                    " in training: were the images that it was trained on mixed otherwise?"
                ),
            )
        return (f"{begin}. {self.samples_elsewhere} images outside usual contexts are too few.",)

    def _who(self) -> tuple[str, ...]:
        worst = [one for one in self.by_class if one.loss >= LEAST_DIFFERENCE][:3]
        parts = ", ".join(
            f"{name_class(one.label)} ({100 * one.in_usual:.0f} % in"
            f" {name_context(one.usual_context)}, {100 * one.elsewhere:.0f} % of"
            f" {one.samples_elsewhere} elsewhere)"
            for one in worst
        )
        return (f"Most affected: {parts}.",) if worst else ()


@dataclass(frozen=True)
class Comparison:
    """Which of two models relies more on the context.

    Attributes:
        difference: The first one's effect minus the second one's, from −1 to 1.
        standard_error: Standard error of the difference, paired where both have the same images.
    """

    difference: float
    standard_error: float

    def sentence(self, first: str, second: str) -> str:
        """Say which model relies more.

        Args:
            first: Name of the first model.
            second: Name of the second model.
        """
        if np.isnan(self.difference):
            return f"Cannot tell which of {first} and {second} relies more on the context."
        size = f"difference {_points(abs(self.difference), self.standard_error)}"
        if abs(self.difference) <= ERRORS_SURE * self.standard_error:
            return (
                f"No difference is shown in how much {first} and {second} rely on the context"
                f" ({size})."
            )
        more, less = (first, second) if self.difference > 0 else (second, first)
        return f"{more} relies more on the context than {less} ({size})."


def _points(value: float, error: float) -> str:
    return f"{100 * value:.1f} ± {100 * error:.1f} points".replace("-", "−")
