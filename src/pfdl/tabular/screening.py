"""Which columns of a table follow the label only because of how the sample was selected?

Selection that favours rows where a column V lies close to the label y makes V look like an *effect*
of y. Effects and causes of y leave different marks on the correlations among the columns:

* given y, an effect has little left in common with the other columns: y alone says most of what can
  be said about it;
* given y, the causes of y correlate *more*: they collide in y, so knowing y and one cause tells
  about the others.

:mod:`pfdl.tabular.moments` measures both. This is the label-conditional decomposition: an extension
of this project, not part of the PFDL paper. Suspicion has three grades. A *suspect* looks like an
effect; a *strong* suspect looks like nothing else; a follower is *sure* where, besides, the columns
left behave like causes and halves of the rows agree.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pfdl.tabular.moments import ALPHA, Evidence, FloatArray, Mask, Moments, independent_columns

if TYPE_CHECKING:
    from pfdl.tabular.environments import Environments

Drop = Literal["sure", "strong", "suspects"]
GRADES = ("", "suspect", "strong", "sure")
SUSPECT, STRONG, SURE = 1, 2, 3
LEVELS: dict[str, int] = {"sure": SURE, "strong": STRONG, "suspects": SUSPECT}

KEPT, SUSPICIOUS, AS_ASKED = "kept", "kept, suspicious", "kept as asked"
FOLLOWS_LABEL, ISOLATED, CHANGES = "follows the label", "isolated", "changes between environments"
CONSTANT, NEAR_COPY, IDENTIFIER, MISSING = (
    "constant",
    "near copy of the label",
    "identifies the rows",
    "mostly missing",
)

# A column is a suspect where the label alone explains more than this share of what can be explained
# of it, and k/m lies below the second.
SHARE_THRESHOLD, RATIO_THRESHOLD = 0.5, 0.6
# A mere suspect is judged only if the others explain at least this share of it: of a column that
# they hardly explain, the label tells most whatever it is.
_LEAST_M = 0.15
# Columns that must be left. With two, R's table of the movements of seals would lose a column (the
# latitude to be predicted, ``delta_long`` dropped) though its rows were not selected.
_LEAST_LEFT = 3
# What makes a suspicion strong, chosen on the design half of the real tables: the label
# leaves the other columns less than a tenth of what they knew, and says nine tenths of all that can
# be said.
_STRONG_RATIO, _STRONG_SHARE = 0.1, 0.9
_STRONG_M, _STRONG_LABEL_SHARE, _STRONG_VALUES = 0.01, 0.16, 10
# What the causes must keep in common once the label is known. Causes of one sign that correlate
# lose a little of it (house prices: 0.93 to 0.95); beside a suspect that lost all of it they are
# still causes, beside a weaker one not.
_COLLISION_BESIDE_STRONG, _COLLISION = 0.9, 0.98
_COPY, _EXACT, _LEAST_SURVIVAL = 0.97, 0.999, 0.9
# Not one half: without a column that was injected into CPS 1988 the true ones explain 0.49 to 0.51
# (r = 1.7) and 0.44 (r = 2) of what all explain, and it has to go. On MMADS that share is 0.51 or
# more in every table.
_LEAST_EXPLAINED = 0.4
# Halves of the rows that are screened as well before a suspicion is sure.
_HALVES, _MOST_ROWS_OF_A_HALF = 20, 50_000
_WEIGHT_THAT_COUNTS = 1e-6


class Outcome(enum.Enum):
    """Why the suspicion of one sample is sure, or is not, in words that a sentence of the verdict
    is made of.
    """

    SELECTION = "columns surely follow the label"
    NO_SELECTION = "no column follows the label as if selected by it"
    TOO_SMALL = "{rows:.0f} rows of {columns} columns are too few to judge"
    CONSTANT_LABEL = "the label is constant, so there is nothing to screen for"
    EXACT = "the columns determine the label exactly, so it was computed from them"
    AMBIGUOUS = "the other columns do not behave like causes of the label"
    FEW_LEFT = "fewer than three columns would be left"
    COSTLY = "the other columns explain little of the label"
    UNSTABLE = "halves of the rows do not agree on it"


@dataclass(frozen=True)
class Screening:
    """What was found: one entry per column in every array.

    Attributes:
        m: share of the column that the other columns explain; NaN where it cannot be judged.
        k: the same once the label is known.
        share: of all that can be explained of the column, how much the label explains alone.
        relevance: p-value of "given all other columns, this one and the label have nothing in
            common".
        grade: 0, or how strong the suspicion is: ``SUSPECT``, ``STRONG`` or ``SURE``.
        decision: what became of the column: ``KEPT``, ``SUSPICIOUS``, ``AS_ASKED``, ``CONSTANT``,
            ``NEAR_COPY``, ``IDENTIFIER`` or ``MISSING``, which are kept; ``FOLLOWS_LABEL``,
            ``ISOLATED`` or ``CHANGES``.
        survival: share of the halves of the rows in which the column surely follows the label, too;
            NaN where that was not asked.
        outcome: why the suspicion is sure, or is not.
        rows: rows of the table; with weights, how many they are worth.
        explained: share of the label that all columns explain linearly.
        explained_without: the same without the columns under the strongest suspicion there is; NaN
            if there is none.
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
        return np.isin(self.decision.astype(str), (FOLLOWS_LABEL, ISOLATED, CHANGES), invert=True)


def screen_table(
    X: FloatArray,
    label: FloatArray,
    weight: FloatArray,
    *,
    number: bool,
    seed: int,
    drop: Drop,
    protected: Mask,
    unjudged: NDArray[np.object_],
) -> Screening:
    """Grade every column of a table as it comes, and decide which to leave out.

    What cannot be judged is set aside first. A constant column is kept, as it does no harm. A
    column of which the label explains 97 % and more is kept and flagged: no noisy selection makes
    one, and whether it is computed from the label or the label from it, the table cannot tell. A
    column that can be computed from others is judged with them: it shares the strongest suspicion
    on a column that goes into it.

    Args:
        X: The columns, of shape (n, p).
        label: Functions of the label with full column rank, of shape (n, d).
        weight: Weight of each row.
        number: Whether the label is a number, not a class. Only then suspicion may be strong: what
            makes it so was measured with numbers, and columns are effects of a class more often
            than of a number.
        seed: Seed of the halves.
        drop: The weakest suspicion on which a column is left out.
        protected: Mask of the columns that stay whatever is found.
        unjudged: The decision on columns that are not to be judged, empty for the others.
    """
    aside = (unjudged != "").astype(bool)
    moments = Moments.of(X, label, weight)
    copies = _near_copies(moments) & ~aside
    independent, combination = independent_columns(moments, copies | aside)
    core = X if len(independent) == X.shape[1] else X[:, independent]
    found = _grade(core, label, weight, moments.subset(independent), number, seed)
    uses = np.abs(combination) > _WEIGHT_THAT_COUNTS
    grade = np.max(uses * found.grade[:, None], axis=0, initial=0).astype(np.int8)
    decision = np.where(grade > 0, SUSPICIOUS, KEPT).astype(object)
    if len(X):
        decision[~uses.any(axis=0)] = CONSTANT
    decision[copies] = NEAR_COPY
    decision[aside] = unjudged[aside]
    goes = grade >= LEVELS[drop]
    decision[goes] = np.where(protected[goes], AS_ASKED, FOLLOWS_LABEL)
    if (decision == FOLLOWS_LABEL).any():
        alone = independent[found.decision == ISOLATED]
        decision[alone[~protected[alone]]] = ISOLATED
    figures: dict[str, Any] = {}
    for name in ("m", "k", "share", "relevance", "survival"):
        figures[name] = np.full(X.shape[1], np.nan)
        figures[name][independent] = getattr(found, name)
    return replace(found, grade=grade, decision=decision, **figures)


def _near_copies(moments: Moments) -> Mask:
    p = moments.num_columns
    if not len(moments.label) or moments.rows < 2 * len(moments.label) + 10:
        return np.zeros(p, dtype=bool)
    varies = np.diag(moments.joint)[:p] > 0.5
    return np.asarray(varies & (moments.residual_variance(moments.label) < 1.0 - _COPY))


def _are_enough(moments: Moments) -> bool:
    """Return whether there are rows enough to judge so many columns."""
    return moments.rows >= 2 * len(moments.mean) + 10


def _grade(
    X: FloatArray, label: FloatArray, weight: FloatArray, moments: Moments, number: bool, seed: int
) -> Screening:
    """Grade independent columns: what one sample says, what halves of it say, and what it would
    cost to believe it.

    The decision is ``ISOLATED`` on columns that add nothing once the sure followers go, ``KEPT`` on
    the others.
    """
    p = X.shape[1]
    unknown: FloatArray = np.full(p, np.nan)
    grade, kept = np.zeros(p, dtype=np.int8), np.full(p, KEPT, dtype=object)
    if not label.shape[1] or p < 2 or not _are_enough(moments):
        outcome = Outcome.TOO_SMALL if label.shape[1] or not len(X) else Outcome.CONSTANT_LABEL
        return Screening(
            unknown, unknown, unknown, unknown, grade, kept, unknown, outcome, moments.rows
        )
    sample = Sample(X, moments, number)
    grade = np.where(sample.strong, STRONG, np.where(sample.suspect, SUSPECT, 0)).astype(np.int8)
    explained, survival, outcome = sample.explained(np.ones(p, dtype=bool)), unknown, sample.outcome
    if (
        grade.any() and explained > _EXACT
    ):  # the label was computed from the columns: nothing follows it
        grade, outcome = np.minimum(grade, SUSPECT), Outcome.EXACT
    elif sample.sure.any():
        survival = _survival(X, label, weight, number, seed)
        stable = sample.sure & (survival >= _LEAST_SURVIVAL)
        outcome = Outcome.UNSTABLE
        if stable.any():
            collision = _COLLISION_BESIDE_STRONG if (sample.strong | ~stable).all() else _COLLISION
            outcome, isolated = sample.confirm(stable, collision)
            if (
                outcome is Outcome.SELECTION
                and sample.explained(~stable) < _LEAST_EXPLAINED * explained
            ):
                outcome = Outcome.COSTLY
            if outcome is Outcome.SELECTION:
                grade[stable], kept[isolated] = SURE, ISOLATED
    without = sample.explained(grade < grade.max()) if grade.any() else math.nan
    m, k, relevance = sample.first.m, sample.first.k, sample.evidence.relevance
    return Screening(
        m,
        k,
        sample.share,
        relevance,
        grade,
        kept,
        survival,
        outcome,
        moments.rows,
        explained,
        without,
    )


class Sample:
    """What one sample of the rows says, before halves of it are asked.

    Attributes:
        evidence: What the regressions among columns and label say.
        first: m, k and share of every column.
        share: The same share, of each column when it was last looked at.
        suspect: Mask of the columns that look like effects of the label.
        strong: Mask of those that look like nothing else.
        sure: Mask of those beside which the other columns behave like causes.
        outcome: Why some are sure, or none.
    """

    def __init__(self, X: FloatArray, moments: Moments, number: bool) -> None:
        self.X, self.moments, self.number = X, moments, number
        self.evidence = Evidence(moments)
        self.first = self.evidence.given([])
        # An indicator cannot lie close to a label and is never dropped.
        self.quantity = ~((X.min(axis=0) == X) | (X.max(axis=0) == X)).all(axis=0)
        self._judged = self.first.correlated & self.evidence.relevant & (self.first.m >= _LEAST_M)
        followers, self.share = self._followers()
        self.strong = self._strong()
        self.suspect = followers | self.strong
        self.sure, self.outcome = np.zeros(X.shape[1], dtype=bool), Outcome.NO_SELECTION
        if self.suspect.any():
            self.outcome = Outcome.AMBIGUOUS
        others = self._judged & (self.share > SHARE_THRESHOLD) & self.quantity & ~followers
        clear = self.strong & (self.first.m >= _LEAST_M)
        for columns, collision in (
            (followers & ~others.any(), _COLLISION),
            (clear, _COLLISION_BESIDE_STRONG),
        ):
            if columns.any() and not self.sure.any():
                self.outcome, _ = self.confirm(columns, collision)
                if self.outcome is Outcome.SELECTION:
                    self.sure = columns

    def explained(self, columns: Mask) -> float:
        """Return the share of the label that a regression on some columns explains."""
        return self.moments.explained_share(np.flatnonzero(columns), 1 if self.number else None)

    def confirm(self, followers: Mask, collision: float) -> tuple[Outcome, Mask]:
        """Ask whether enough columns would be left, and whether these behave like causes of the
        label.

        Returns:
            The outcome, and the mask of the columns that are isolated then: they add nothing to
            what is kept.
        """
        kept, isolated = np.flatnonzero(~followers), np.zeros(len(followers), dtype=bool)
        if len(kept) < _LEAST_LEFT:
            return Outcome.FEW_LEFT, isolated
        table = Evidence(self.moments.subset(kept))
        rest, causes = table.given([]), table.relevant
        # Causes collide in the label, at least two that are quantities: they keep in common what
        # they had, or gain.
        if (causes & self.quantity[kept]).sum() < 2 or rest.k[causes].sum() <= collision * rest.m[
            causes
        ].sum():
            return Outcome.AMBIGUOUS, isolated
        # Undivided: to fail a strict test is no proof.
        isolated[kept] = (table.relevance > ALPHA) & ~rest.collides
        return Outcome.SELECTION, isolated

    def _followers(self) -> tuple[Mask, FloatArray]:
        """Take the clearest follower of the label, look again given what was taken, until none is
        left.

        Looking again is what separates the rest: a cause may resemble the label merely because it
        resembles a follower, and once that is accounted for it no longer does.
        """
        taken: list[int] = []
        now, share = self.first, self.first.share.copy()
        eligible = self._judged & (self.first.k < RATIO_THRESHOLD * self.first.m) & self.quantity
        while True:
            left = np.setdiff1d(np.arange(len(share)), taken)
            share[left] = now.share[left]
            candidates = left[(eligible & (share > SHARE_THRESHOLD))[left]]
            if not len(candidates) or len(left) == 1:
                return np.isin(np.arange(len(share)), taken), share
            taken.append(int(candidates[np.argmax(share[candidates])]))
            now = self.evidence.given(taken)

    def _strong(self) -> Mask:
        """Return the columns that given the label have nothing to do with the others, though these
        predict the label.

        A cause of the label does not look like that: it collides with the others in it. So the
        others must add to the prediction of the label, given the suspects; else there is nothing to
        collide with.
        """
        first, moments, none = self.first, self.moments, np.zeros(self.X.shape[1], dtype=bool)
        if not self.number:
            return none
        strong = first.correlated & (first.m >= _STRONG_M) & self.evidence.relevant & self.quantity
        strong &= (first.k < _STRONG_RATIO * first.m) & (first.share > _STRONG_SHARE)
        strong &= moments.residual_variance(moments.label) <= 1.0 - _STRONG_LABEL_SHARE
        for j in np.flatnonzero(strong):
            strong[j] = len(np.unique(self.X[:, j])) >= _STRONG_VALUES
        explained = self.evidence.adds_to_label(np.flatnonzero(strong))
        return strong if explained and (~strong).sum() >= _LEAST_LEFT else none


def _survival(
    X: FloatArray, label: FloatArray, weight: FloatArray, number: bool, seed: int
) -> FloatArray:
    """Return the share of the halves of the rows in which each column surely follows the label."""
    counts = np.zeros(X.shape[1])
    for rows in _halves(len(X), seed):
        half = Moments.of(X[rows], label[rows], weight[rows])
        if _are_enough(half):
            counts += Sample(X[rows], half, number).sure
    return counts / _HALVES


def _halves(n: int, seed: int) -> Iterator[NDArray[np.intp]]:
    """Yield the rows of each half, in complementary pairs."""
    rng = np.random.default_rng(seed)
    size = min(n // 2, _MOST_ROWS_OF_A_HALF)
    for _ in range(_HALVES // 2):
        order = rng.permutation(n)
        yield np.sort(order[:size])
        yield np.sort(order[-size:])
