"""What a diagnosis found, and how to say it in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pfdl.contexts.groups import Accuracies
from pfdl.diagnosis.shift import ShiftCurve
from pfdl.diagnosis.verdict import CANNOT_TELL, ContextReliance

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]

_RATIO_FROM = 0.05
"""Below this R² a ratio of two R² is a ratio of noise."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Whether a model relies on the context, and how predictable its features are from each other.

    Attributes:
        accuracies: By class, by context and by both; None without predictions.
        reliance: Whether the answers follow the context; None if that cannot be measured.
        shift: What accuracy to expect if the contexts shift; None if that cannot be measured.
        unanswered: Why ``reliance`` is None; else empty.
        r2: How predictable each feature is from the others by ridge regression, shape (p,): R² on samples left out of
            the fit. 1: fully; 0: not at all; NaN: the feature is constant.
        r2_within_class: The same once the mean of each class is taken off, shape (p,); NaN if the feature is constant
            within every class.
    """

    accuracies: Accuracies | None
    reliance: ContextReliance | None
    shift: ShiftCurve | None
    unanswered: str
    r2: FloatArray
    r2_within_class: FloatArray

    @property
    def answer(self) -> str:
        """Return whether the model relies on the context: ``"yes"``, ``"no"`` or ``"cannot tell"``."""
        return CANNOT_TELL if self.reliance is None else self.reliance.answer

    @property
    def within_ratio(self) -> FloatArray:
        """``r2_within_class / r2``, shape (p,); NaN where a feature is hardly predictable.

        Near 1: the feature correlates with others whatever the class, so they share more than the class (the context,
        for instance). Near 0: they correlate because they all follow the class.
        """
        ratio = np.full_like(self.r2, np.nan)
        enough = self.r2 >= _RATIO_FROM  # False for NaN
        ratio[enough] = np.nan_to_num(self.r2_within_class[enough]) / self.r2[enough]
        return ratio

    def frame(self) -> pd.DataFrame:
        """Return one row per feature, the most predictable first."""
        import pandas as pd

        columns = {"r2": self.r2, "r2_within_class": self.r2_within_class, "within_ratio": self.within_ratio}
        table = pd.DataFrame(columns, index=pd.RangeIndex(len(self.r2), name="feature"))
        return table.sort_values("r2", ascending=False, kind="stable")

    def verdict(self) -> tuple[str, ...]:
        """Say what was found in sentences: first whether the model relies on the context, then what belongs to it."""
        return (*self.on_reliance(), *self.on_shift(), *self.on_accuracy(), *self.on_features())

    def on_reliance(self) -> tuple[str, ...]:
        """Say whether the model relies on the context, and what supports that."""
        if self.reliance is None:
            return (f"Cannot tell whether the model relies on the context: {self.unanswered}.",)
        return self.reliance.sentences()

    def on_shift(self) -> tuple[str, ...]:
        """Say what to expect if the contexts shift, where that can be said."""
        return () if self.reliance is None or self.shift is None else (self.shift.sentence(),)

    def on_accuracy(self) -> tuple[str, ...]:
        """Say how many images are recognised, on the whole and in the worst group."""
        if self.accuracies is None:
            return ()
        worst = self.accuracies.worst_group
        return (
            f"Accuracy is {_percent(self.accuracies.overall)} on all images; in the worst group, {worst.name}, it is "
            f"{_percent(worst.accuracy)} of {worst.samples} images.",
        )

    def on_features(self) -> tuple[str, ...]:
        """Say how far the features predict each other."""
        varying = int(np.sum(~np.isnan(self.r2)))
        if varying < 2:
            return (f"Only {varying} of {len(self.r2)} features vary: there is nothing to predict from others.",)
        marginal, within = known_median(self.r2), known_median(self.r2_within_class)
        aside = f"; {len(self.r2) - varying} more are constant" if varying < len(self.r2) else ""
        bounds = ((0.1, "hardly"), (0.5, "partly"), (0.9, "mostly"), (np.inf, "almost fully"))
        how = next(words for bound, words in bounds if marginal < bound)
        inside = "" if np.isnan(within) else f", {within:.2f} within a class"
        return (
            f"Each feature is {how} predictable from the others (median R² {marginal:.2f} of {varying} features"
            f"{inside}{aside}).",
        )


def _percent(share: float) -> str:
    return "more than 99 %" if 0.995 <= share < 1 else f"{100 * share:.0f} %"


def known_median(values: FloatArray) -> float:
    """Return the median of the values that are not NaN; NaN if there are none."""
    return float(np.nanmedian(values)) if np.isfinite(values).any() else float("nan")
