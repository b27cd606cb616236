"""Which columns of a table behave like effects of its label?

An effect of the label is a column computed from it or after it (leakage), an outcome that came
later, or one that the selection of the rows tied to it: the table reads the same. The screen sets
aside what cannot be judged, finds the label's copies, asks the checks of :mod:`pfdl.tabular.leaks`
of every other column, and decides which to leave out. Suspicion comes in three grades:

=======  ======================================================================================
suspect  comes close to passing the checks, or passes given another column (``leaks.judge``)
strong   passes every check (``leaks.CHECKS``)
sure     halves of the rows agree, and the columns left behave like causes: asked with
         ``drop="sure"`` only (:mod:`pfdl.tabular.selection`)
=======  ======================================================================================
"""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pfdl.tabular import leaks
from pfdl.tabular.marks import (
    column_scores,
    copies,
    measure,
    normal_scores,
    pairs_that_make_label,
)
from pfdl.tabular.moments import (
    FloatArray,
    Independent,
    IndexArray,
    Mask,
    Moments,
    has_more_independent_columns,
    independent_columns,
    label_functions,
    varying,
)
from pfdl.tabular.selection import Sample, sure_followers

if TYPE_CHECKING:
    from pfdl.tabular.environments import Environments

Drop = Literal["sure", "strong", "suspects"]
GRADES = ("", "suspect", "strong", "sure")
SUSPECT = 1
STRONG = 2
SURE = 3
LEVELS: dict[str, int] = {"sure": SURE, "strong": STRONG, "suspects": SUSPECT}

KEPT = "kept"
SUSPICIOUS = "kept, suspicious"
AS_ASKED = "kept as asked"
FOLLOWS_LABEL = "follows the label"
ISOLATED = "isolated"
CHANGES = "changes between environments"
COPY = "copy of the label"
PAIR = "makes the label with another"
CONSTANT = "constant"
NEAR_COPY = "near copy of the label"
IDENTIFIER = "identifies the rows"
MISSING = "mostly missing"
LEFT_OUT = (FOLLOWS_LABEL, ISOLATED, CHANGES, COPY, PAIR)

#: Rows that are judged, at most: a sample of so many says as much, and ranking takes time.
MOST_ROWS = 100_000
#: A label of more classes is not judged: each of them is a function that columns are regressed on.
MOST_CLASSES = 300
#: A value in fewer rows than these may lie where it does by chance.
_LEAST_ROWS_OF_COPY = 10
#: Of a column the label must explain this much before it is compared with it in full.
_LEAST_OF_COPY = 0.02
#: What two columns must explain to be called the label, and how wide a table is searched for them.
_PAIR_EXPLAINS = 0.9999
_WIDEST_FOR_SUMS = 500
#: A column goes into another if its weight in units of both is at least this.
_WEIGHT_THAT_COUNTS = 1e-6
#: Judging so many columns takes seconds.
_WIDE = 500


class Outcome(enum.Enum):
    """What was found in the table as a whole, in words that the verdict is made of."""

    FOUND = "columns behave like effects of the label"
    NOTHING = "no column behaves like an effect of the label"
    TOO_SMALL = "{rows:.0f} rows of {columns} columns are too few to judge"
    NO_OTHERS = "a column is judged by others, and there are none that vary"
    MANY_CLASSES = f"the label has more than {MOST_CLASSES} classes, too many to judge by"
    CONSTANT_LABEL = "the label is constant, so there is nothing to screen for"


@dataclass(frozen=True)
class Table:
    """What is judged.

    Attributes:
        X: The columns; NaN where a value is missing.
        y: The label: numbers or classes.
        weight: Weight of each row.
        number: Whether the label is a number, not a class.
        unjudged: The decision on columns that are not to be judged, empty for the others.
        protected: Mask of the columns that stay whatever is result.
    """

    X: FloatArray
    y: NDArray[np.generic]
    weight: FloatArray
    number: bool
    unjudged: NDArray[np.object_]
    protected: Mask

    def rows(self, chosen: Mask | IndexArray) -> Table:
        """Return some of the rows."""
        return replace(self, X=self.X[chosen], y=self.y[chosen], weight=self.weight[chosen])


@dataclass
class Screening:
    """What was found: one entry per column in every array. The screen fills it step by step.

    Attributes:
        m: Share of the column that the other columns explain, of ranks; NaN where it cannot be
            judged.
        k: The same once the label is known.
        label: Share of the column that the label explains.
        share: Of all that can be explained of the column, how much the label explains alone.
        relevance: p-value of "given all other columns, this one and the label have nothing in
            common".
        grade: 0, or how strong the suspicion is: ``SUSPECT``, ``STRONG`` or ``SURE``.
        decision: What became of the column: one of ``LEFT_OUT``, or ``KEPT``, ``SUSPICIOUS``,
            ``AS_ASKED``, ``CONSTANT``, ``NEAR_COPY``, ``IDENTIFIER`` or ``MISSING``.
        reasons: Why a column is not taken for an effect of the label; empty if it is.
        undecided: Mask of columns that the label tells much of and that cannot be judged.
        survival: Share of the halves of the rows in which the column surely follows the label; NaN
            where that was not asked.
        outcome: What was found in the table as a whole.
        rows: Rows that were judged; with weights, how many they are worth.
        rows_with_holes: How many of them had a missing value, which the middle one replaced.
        explained: Share of the label that all judged columns explain linearly.
        explained_without: The same without those under the strongest suspicion there is; NaN if
            there is none.
        pairs: Pairs of columns whose weighted sum is the label.
        environments: What known environments say, if there are any.
    """

    m: FloatArray
    k: FloatArray
    label: FloatArray
    share: FloatArray
    relevance: FloatArray
    grade: NDArray[np.int8]
    decision: NDArray[Any]
    reasons: NDArray[Any]
    undecided: Mask
    survival: FloatArray
    outcome: Outcome
    rows: float
    rows_with_holes: int = 0
    explained: float = math.nan
    explained_without: float = math.nan
    pairs: list[tuple[int, int]] = field(default_factory=list)
    environments: Environments | None = None

    @property
    def kept(self) -> Mask:
        """Mask of the columns to use."""
        return ~self.met(*LEFT_OUT)

    def met(self, *decisions: str) -> Mask:
        """Return the mask of the columns that met with one of some decisions."""
        return np.isin(self.decision.astype(str), decisions)


def screen_table(table: Table, *, drop: Drop, seed: int) -> Screening:
    """Grade every column of a table as it comes, and decide which to leave out.

    A constant column is kept, as it does no harm. A column that can be computed from others is
    judged with them: it shares the strongest suspicion on a column that goes into it.

    Args:
        table: The table.
        drop: The weakest suspicion on which a column is left out.
        seed: Seed of the rows that are judged where there are very many, and of the halves of the
            rows that ``drop="sure"`` asks.
    """
    if len(table.X) > MOST_ROWS:
        chosen = np.random.default_rng(seed).choice(len(table.X), MOST_ROWS, replace=False)
        table = table.rows(np.sort(chosen))
    with _said_if_wide(table):
        return _screen(table, drop, seed)


def _screen(table: Table, drop: Drop, seed: int) -> Screening:
    result = _nothing_found(table)
    moments = _moments_of_ranks(result, table)
    if moments is None:
        return result
    aside = _set_aside(result, table, moments)
    independent = _find_independent(result, moments, aside)
    if independent is not None:
        columns = independent.columns
        core = moments.subset(columns)
        _judge(result, core, independent)
        if table.X.shape[1] <= _WIDEST_FOR_SUMS or drop == "sure":
            values = _values_of(table, columns)
            core = values.moments()
            if drop == "sure":
                _ask_strictly(result, values, core, columns, seed)
            if table.number:
                _find_pairs(result, core, columns)
        _compare_explained(result, core, columns, table.number)
    _decide(result, table, drop)
    return result


def _moments_of_ranks(result: Screening, table: Table) -> Moments | None:
    """Return the moments of the ranks of columns and label; None, with the outcome that says why,
    where there is nothing to judge by.
    """
    if not table.number and len(np.unique(table.y)) > MOST_CLASSES:
        result.outcome = Outcome.MANY_CLASSES
        return None
    y = normal_scores(table.y.astype(np.float64)) if table.number else table.y
    label = label_functions(y, table.number, table.weight)
    if not label.shape[1]:
        result.outcome = Outcome.CONSTANT_LABEL
        return None
    moments = Moments.of(column_scores(table.X), label, table.weight)
    result.rows = moments.rows
    return moments


def _find_independent(result: Screening, moments: Moments, aside: Mask) -> Independent | None:
    """Return the linearly independent ones of the columns that are not aside; None if too few or
    too many to judge them. Enter the decision on constant columns.
    """
    varies = varying(moments, aside)
    result.decision[~varies & ~aside] = CONSTANT
    most = _most_columns(moments)
    if has_more_independent_columns(moments, aside, max(most, 1)):
        result.outcome = Outcome.TOO_SMALL
        return None
    independent = independent_columns(moments, aside)
    if len(independent.columns) < 2:
        result.outcome = Outcome.NO_OTHERS
        return None
    if len(independent.columns) > most:
        result.outcome = Outcome.TOO_SMALL
        return None
    return independent


def _nothing_found(table: Table) -> Screening:
    """Return the screening of a table of which nothing is known but what is not to be judged."""
    p = table.X.shape[1]
    unjudged = table.unjudged != ""
    has_hole = np.isnan(table.X[:, table.unjudged != MISSING]).any(axis=1)

    def unknown() -> FloatArray:
        return np.full(p, np.nan)

    return Screening(
        m=unknown(),
        k=unknown(),
        label=unknown(),
        share=unknown(),
        relevance=unknown(),
        grade=np.zeros(p, dtype=np.int8),
        decision=np.where(unjudged, table.unjudged, KEPT).astype(object),
        reasons=np.full(p, "", dtype=object),
        undecided=np.zeros(p, dtype=bool),
        survival=unknown(),
        outcome=Outcome.NOTHING,
        rows=float(len(table.X)),
        rows_with_holes=int(has_hole.sum()),
    )


def _most_columns(moments: Moments) -> int:
    """Return how many columns there are rows enough to judge; negative if there are too few rows
    for the label alone.
    """
    return math.floor((moments.rows - 10) / 2) - len(moments.label)


def _set_aside(result: Screening, table: Table, moments: Moments) -> Mask:
    """Return the columns that are not judged by others: those that cannot be, and those that are
    the label over again, or nearly. Enter the decision on these.
    """
    unjudged: Mask = np.asarray(table.unjudged != "")
    if _most_columns(moments) < 0:
        return unjudged
    explained = 1.0 - moments.unexplained_by_label()
    related = np.flatnonzero((explained > _LEAST_OF_COPY) & ~unjudged)
    are_copies = copies(table.X[:, related], table.y, table.number, _LEAST_ROWS_OF_COPY)
    exact = related[are_copies]
    near: Mask = ~unjudged & moments.varies & (explained > leaks.COPY)
    # A column that nearly tells the class is hardly ever honest (1 of 362 tables); one that
    # nearly tells a number often is: sizes of one body, counts of one kind.
    result.decision[near] = NEAR_COPY if table.number else COPY
    result.decision[exact] = COPY
    near[exact] = True
    return np.asarray(unjudged | near)


def _judge(result: Screening, core: Moments, independent: Independent) -> None:
    """Enter the marks of the independent columns, and what they say; what is computed from judged
    columns shares the strongest suspicion.
    """
    columns = independent.columns
    marks = measure(core)
    for name in ("m", "k", "label", "share", "relevance"):
        getattr(result, name)[columns] = getattr(marks, name)
    judgement = leaks.judge(core, marks)
    grade = np.zeros(len(columns), dtype=np.int8)
    grade[judgement.suspects] = SUSPECT
    grade[judgement.leaks] = STRONG
    goes_into = np.abs(independent.combination) > _WEIGHT_THAT_COUNTS
    result.grade[:] = np.max(goes_into * grade[:, None], axis=0, initial=0)
    result.reasons[columns] = judgement.reasons
    result.undecided[columns] = judgement.undecided


def _values_of(table: Table, columns: IndexArray) -> Sample:
    """Return some columns and the label as they are, not as ranks: sums are lost by ranking."""
    label = label_functions(table.y, table.number, table.weight)
    return Sample(filled(table.X[:, columns]), label, table.weight, table.number)


def _ask_strictly(
    result: Screening, values: Sample, moments: Moments, columns: IndexArray, seed: int
) -> None:
    """Enter which columns surely follow the label, and what is isolated without them."""
    sure = sure_followers(values, moments, seed)
    result.survival[columns] = sure.survival
    result.grade[columns[sure.columns]] = SURE
    result.decision[columns[sure.isolated]] = ISOLATED


def _find_pairs(result: Screening, moments: Moments, columns: IndexArray) -> None:
    """Enter the pairs of columns whose sum makes the label."""
    for pair in pairs_that_make_label(moments, _PAIR_EXPLAINS):
        first, second = columns[list(pair)].tolist()
        result.pairs.append((first, second))


def _compare_explained(
    result: Screening, moments: Moments, independent: IndexArray, number: bool
) -> None:
    """Enter how much of the label the columns explain, with and without the clearest suspects."""
    goal = 1 if number else None
    grade = result.grade[independent]
    result.explained = moments.explained_share(np.arange(len(independent)), goal)
    if grade.any():
        others = np.flatnonzero(grade < grade.max())
        result.explained_without = moments.explained_share(others, goal)


def filled(X: FloatArray) -> FloatArray:
    """Replace missing values by the mean of their column, or by 0 where there are no others."""
    holes = np.isnan(X)
    if not holes.any():
        return X
    known = np.maximum((~holes).sum(axis=0), 1)
    mean = np.where(holes, 0.0, X).sum(axis=0) / known
    return np.where(holes, mean, X)


def _decide(result: Screening, table: Table, drop: Drop) -> None:
    """Decide on the columns that were not set aside: the first decision that applies counts. Heed
    what is to be kept.
    """
    follows = result.grade >= LEVELS[drop]
    isolated = result.decision == ISOLATED
    stays = table.protected | (not follows.any())
    tried = {
        FOLLOWS_LABEL: follows,
        ISOLATED: isolated & ~stays,
        KEPT: isolated,
        PAIR: np.isin(np.arange(len(follows)), result.pairs),
        SUSPICIOUS: result.grade > 0,
    }
    is_open = isolated | (result.decision == KEPT)
    for decision, applies in tried.items():
        result.decision[is_open & applies] = decision
        is_open &= ~applies
    are_effects = result.met(FOLLOWS_LABEL, COPY, PAIR)
    result.decision[are_effects & table.protected] = AS_ASKED
    if are_effects.any() or result.grade.any():
        result.outcome = Outcome.FOUND


@contextmanager
def _said_if_wide(table: Table) -> Iterator[None]:
    """Say on a terminal that a wide table is being judged, which takes seconds."""
    rows, columns = table.X.shape
    shown = columns >= _WIDE and sys.stderr.isatty()
    if shown:
        sys.stderr.write(f"LeakScreen: judging {columns:,} columns of {rows:,} rows …")
        sys.stderr.flush()
    yield
    if shown:
        sys.stderr.write(" done\n")
