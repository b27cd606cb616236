"""What a screening is judged by, and what it finds: grades of suspicion, decisions, outcomes."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pfdl.tabular.environments import Environments

FloatArray = NDArray[np.float64]
Mask = NDArray[np.bool_]

Drop = Literal["sure", "strong", "suspects"]
GRADES = ("", "suspect", "strong", "sure")
SUSPECT, STRONG, SURE = 1, 2, 3
LEVELS: dict[str, int] = {"sure": SURE, "strong": STRONG, "suspects": SUSPECT}

KEPT, SUSPICIOUS, AS_ASKED = "kept", "kept, suspicious", "kept as asked"
FOLLOWS_LABEL, ISOLATED, CHANGES = "follows the label", "isolated", "changes between environments"
CONSTANT, NEAR_COPY, IDENTIFIER, MISSING = "constant", "near copy of the label", "identifies the rows", "mostly missing"


class Outcome(enum.Enum):
    """Why the suspicion of one sample is sure, or is not."""

    SELECTION = "columns surely follow the label"
    NO_SELECTION = "no column follows the label"
    TOO_SMALL = "too few rows or columns"
    CONSTANT_LABEL = "the label is constant"
    EXACT = "the columns determine the label exactly"
    AMBIGUOUS = "columns follow the label, but the others do not behave like its causes"
    FEW_LEFT = "columns follow the label, but too few would be left"
    COSTLY = "columns follow the label, but without them too little is explained"
    UNSTABLE = "columns follow the label, but not in every half of the rows"


@dataclass(frozen=True)
class Rules:
    """When a column is suspected, and when that is sure.

    Attributes:
        alpha: level of the tests, divided by the number of columns.
        share_threshold: a column is a suspect where the label alone explains more than this share of what can be,
        ratio_threshold: and k/m lies below this.
        least_m: a mere suspect is judged only if the others explain at least this share of it: of a column that they
            hardly explain, the label tells most whatever it is.
        least_left: columns that must be left. With two, R's table of the movements of seals would lose a column (the
            latitude to be predicted, ``delta_long`` dropped) though its rows were not selected.
        resamples: halves of the rows that are screened as well, in complementary pairs; nine of ten must agree.
        seed: seed of the halves.
        goal: how many of the label's functions, from the first on, are the label that is to be explained.
        may_be_strong: whether suspicion may be strong: what makes it so was measured with numbers as labels, and
            columns are effects of a class more often than of a number.
    """

    alpha: float = 0.01
    share_threshold: float = 0.5
    ratio_threshold: float = 0.6
    least_m: float = 0.15
    least_left: int = 3
    resamples: int = 20
    seed: int = 0
    goal: int = 1
    may_be_strong: bool = True


@dataclass(frozen=True)
class Screening:
    """What was found: one entry per column in every array.

    Attributes:
        m: share of the column that the other columns explain; NaN where it cannot be judged.
        k: the same once the label is known.
        share: of all that can be explained of the column, how much the label explains alone.
        relevance: p-value of "given all other columns, this one and the label have nothing in common".
        grade: 0, or how strong the suspicion is: ``SUSPECT``, ``STRONG`` or ``SURE``.
        decision: what became of the column: ``KEPT``, ``SUSPICIOUS``, ``AS_ASKED``, ``CONSTANT``, ``NEAR_COPY``,
            ``IDENTIFIER`` or ``MISSING``, which are kept; ``FOLLOWS_LABEL``, ``ISOLATED`` or ``CHANGES``.
        survival: share of the halves of the rows in which the column surely follows the label, too; NaN where that was
            not asked.
        outcome: why the suspicion is sure, or is not.
        rows: rows of the table; with weights, how many they are worth.
        explained: share of the label that all columns explain linearly.
        explained_without: the same without the columns under the strongest suspicion there is.
        environments: what known environments say, if there are any.
    """

    m: FloatArray
    k: FloatArray
    share: FloatArray
    relevance: FloatArray
    grade: NDArray[np.int8]
    decision: NDArray[Any]
    survival: FloatArray
    outcome: Outcome
    rows: float
    explained: float = math.nan
    explained_without: float = math.nan
    environments: Environments | None = None

    @property
    def kept(self) -> Mask:
        """Mask of the columns to use."""
        mask: Mask = ~np.isin(self.decision.astype(str), (FOLLOWS_LABEL, ISOLATED, CHANGES))
        return mask

    @property
    def followers(self) -> Mask:
        """Mask of the columns that were dropped because they follow the label."""
        mask: Mask = self.decision == FOLLOWS_LABEL
        return mask
