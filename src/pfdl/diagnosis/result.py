"""What a diagnosis found, and how to say it in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pfdl.contexts.groups import Accuracies
from pfdl.diagnosis.clusters import NO_CLUSTER
from pfdl.diagnosis.contexts import ContextReading
from pfdl.diagnosis.shift import ShiftCurve
from pfdl.diagnosis.verdict import CANNOT_TELL, NO, YES, ContextReliance

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]

_BEYOND = 0.05
"""A probe must read the context of so many more samples than the class alone gives."""

_RATIO_FROM = 0.05
"""Below this R² a ratio of two R² is a ratio of noise."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Whether a model relies on the context, and how predictable its features are from each other.

    ũ, the correlated part, is each feature's prediction from all others by ridge regression, on samples that were left
    out of the fit; every feature counts in units of its standard deviation.

    Attributes:
        r2: How predictable each feature is from the others, shape (p,): R² on samples left out. 1: fully; 0: not at
            all; NaN: the feature is constant.
        r2_within_class: The same once the mean of each class is taken off, shape (p,); NaN if the feature is constant
            within every class.
        ranking: The features from the most to the least predictable, constant ones last, shape (p,).
        correlation: Of the features, shape (p, p); NaN in rows and columns of constant features.
        remaining_correlation: What two features still have in common when all others are taken away from both: their
            partial correlation, shape (p, p). (The two rests u − ũ correlate by minus this, as each is without what
            the other predicts.)
        clusters: The cluster of each feature by ``1 − |correlation|``, 0 for the largest, −1 for constant features.
        order: The features that vary in an order that puts similar ones side by side.
        correlated_part: For each sample the length of ũ relative to that of u, shape (n,).
        context_reading: How well the context can be read from the features; None without contexts.
        accuracies: By class, by context and by both; None without predictions.
        reliance: Whether the answers follow the context; None if that cannot be measured.
        shift: What accuracy to expect if the contexts shift; None if that cannot be measured.
        unanswered: Why ``reliance`` is None; else empty.
        ridge: λ/n of the regressions behind ``r2``.
        ridge_within_class: λ/n of those behind ``r2_within_class``.
    """

    r2: FloatArray
    r2_within_class: FloatArray
    ranking: IndexArray
    correlation: FloatArray
    remaining_correlation: FloatArray
    clusters: IndexArray
    order: IndexArray
    correlated_part: FloatArray
    context_reading: ContextReading | None
    accuracies: Accuracies | None
    reliance: ContextReliance | None
    shift: ShiftCurve | None
    unanswered: str
    ridge: float
    ridge_within_class: float

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

    @property
    def answer(self) -> str:
        """Return whether the model relies on the context: ``"yes"``, ``"no"`` or ``"cannot tell"``."""
        return CANNOT_TELL if self.reliance is None else self.reliance.answer

    @property
    def num_varying(self) -> int:
        """Return the number of features that are not constant."""
        return int(np.sum(self.clusters != NO_CLUSTER))

    def most_correlated_samples(self, count: int) -> IndexArray:
        """Return the samples with the largest correlated part, largest first."""
        return np.argsort(-self.correlated_part, kind="stable")[:count]

    def least_correlated_samples(self, count: int) -> IndexArray:
        """Return the samples with the smallest correlated part, smallest first."""
        return np.argsort(self.correlated_part, kind="stable")[:count]

    def frame(self) -> pd.DataFrame:
        """Return one row per feature, the most predictable first."""
        import pandas as pd

        table = pd.DataFrame(
            {
                "r2": self.r2,
                "r2_within_class": self.r2_within_class,
                "within_ratio": self.within_ratio,
                "cluster": self.clusters,
            },
            index=pd.RangeIndex(len(self.r2), name="feature"),
        )
        return table.iloc[self.ranking]

    def summary(self) -> dict[str, Any]:
        """Return the figures that fit in a line each."""
        varying = self.clusters[self.clusters != NO_CLUSTER]
        off_diagonal = ~np.eye(len(self.order), dtype=bool)
        found: dict[str, Any] = {
            "samples": len(self.correlated_part),
            "features": len(self.r2),
            "constant features": len(self.r2) - len(varying),
            "R² of a feature from the others (median)": known_median(self.r2),
            "the same within classes (median)": known_median(self.r2_within_class),
            "mean |correlation|": _mean(np.abs(self.correlation[np.ix_(self.order, self.order)])[off_diagonal]),
            "mean |correlation| given all others": _mean(
                np.abs(self.remaining_correlation[np.ix_(self.order, self.order)])[off_diagonal]
            ),
            "clusters of two or more": int(np.sum(np.bincount(varying) > 1)) if len(varying) else 0,
            "features in the largest cluster": int(np.bincount(varying).max()) if len(varying) else 0,
        }
        if self.context_reading is not None:
            reading = self.context_reading
            found["contexts read from the features"] = reading.accuracy
            found["contexts read from the correlated part"] = reading.from_correlated
            found["contexts read from the rest"] = reading.from_rest
            found["contexts guessed from the class"] = reading.from_label
            found["part of the contexts' differences that is correlated"] = reading.correlated_share
        if self.accuracies is not None:
            found["accuracy on all images"] = self.accuracies.overall
            found["accuracy, mean over groups"] = self.accuracies.average_over_groups
            found["accuracy in the worst group"] = self.accuracies.worst_group.accuracy
        return found

    def verdict(self) -> tuple[str, ...]:
        """Say what was found in sentences: first whether the model relies on the context, then what belongs to it."""
        return (*self._on_reliance(), *self._on_accuracy(), *self._on_contexts(), *self._on_features())

    def _on_reliance(self) -> tuple[str, ...]:
        if self.reliance is None:
            return (f"Cannot tell whether the model relies on the context: {self.unanswered}.",)
        return self.reliance.sentences() + (() if self.shift is None else (self.shift.sentence(),))

    def _on_features(self) -> list[str]:
        if self.num_varying < 2:
            return [
                f"Only {self.num_varying} of {len(self.r2)} features vary: there is nothing to predict from others."
            ]
        marginal, within = known_median(self.r2), known_median(self.r2_within_class)
        constant = len(self.r2) - self.num_varying
        aside = f"; {constant} more are constant" if constant else ""
        how = (
            "hardly"
            if marginal < 0.1
            else "partly"
            if marginal < 0.5
            else "mostly"
            if marginal < 0.9
            else "almost fully"
        )
        sentences = [
            f"Each feature is {how} predictable from the others (median R² {marginal:.2f} of {self.num_varying} "
            f"features{aside})."
        ]
        if marginal >= 0.1 and not np.isnan(within):
            ratio = within / marginal
            what = (
                "so the features share little but the class"
                if ratio < 0.5
                else "so the features share the class and something else"
                if ratio < 0.8
                else "so the features share far more than the class"
            )
            sentences.append(f"Within a class the median R² is {within:.2f}, {what}.")
        return sentences

    def _on_contexts(self) -> list[str]:
        """Say what a probe finds, in words that agree with the answer; what adds nothing to it is not said."""
        reading = self.context_reading
        if reading is None:
            return []
        figures = (
            f"{_percent(reading.accuracy)} of the contexts, where the class alone gives {_percent(reading.from_label)}"
        )
        if reading.accuracy - reading.from_label < _BEYOND:
            if self.answer != NO:
                return []
            return [f"A linear probe does not find the context in the features either ({figures})."]
        then = {
            YES: ".",
            NO: ": the features show the context, but the answers do not depend on it.",
            CANNOT_TELL: "; whether the answers depend on it is another question.",
        }
        return [f"A linear probe reads from the features {figures}{then[self.answer]}"]

    def _on_accuracy(self) -> list[str]:
        if self.accuracies is None:
            return []
        worst = self.accuracies.worst_group
        where = f"{worst.label} in {worst.context}" if self.accuracies.by_context else f"{worst.label}"
        return [
            f"Accuracy is {_percent(self.accuracies.overall)} on all images; in the worst group, {where}, it is "
            f"{_percent(worst.accuracy)} of {worst.samples} images."
        ]


def _percent(share: float) -> str:
    return "more than 99 %" if 0.995 <= share < 1 else f"{100 * share:.0f} %"


def known_median(values: FloatArray) -> float:
    """Return the median of the values that are not NaN; NaN if there are none."""
    return float(np.nanmedian(values)) if np.isfinite(values).any() else float("nan")


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if values.size else float("nan")
