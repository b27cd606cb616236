"""Does a column behave like an effect of the label? One check after the other.

=====================  ======  ==============================================================
constant               value   what fails without it, on the tables the rules were chosen on
=====================  ======  ==============================================================
LEAST_LABEL             0.2    weak causes beside strong ones; no leak of r = 0.6 is lost by it
LEAST_M                 0.005  at 0.05 a tenth of the leaks is lost
MOST_RATIO              0.05   at 0.1 half as many untouched tables more lose a column
MOST_RATIO_BY_CHANCE    0.15   with a hundred rows k/m below 0.05 may be chance
LEAST_K_P               1e-4   in large tables a small k may be certain
MOST_BEYOND             0.05   weak causes beside strong ones
LEAST_RATIO_OF_OTHERS   0.2    columns that share a factor: 28 of 80 tables lose one instead of 7
CLEAR_LABEL             0.5    asked of every column, the check before costs a tenth of the leaks
LEAST_OTHERS            3      with two others, exchange rates lose a column
SUSPECT_RATIO           0.3    nothing is dropped by it: it names what to look at
COPY                    0.97   a noisy selection does not make one; says so and keeps it
=====================  ======  ==============================================================

All were chosen on the design half of the tables of the benchmark (``pfdl reproduce leaks``), none
on the half that its page reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pfdl.tabular.marks import Marks, measure
from pfdl.tabular.moments import FloatArray, Mask, Moments, adds_to_label

LEAST_LABEL = 0.2
LEAST_M = 0.005
MOST_RATIO = 0.05
MOST_RATIO_BY_CHANCE = 0.15
LEAST_K_P = 1e-4
MOST_BEYOND = 0.05
LEAST_RATIO_OF_OTHERS = 0.2
CLEAR_LABEL = 0.5
LEAST_OTHERS = 3
SUSPECT_RATIO = 0.3
COPY = 0.97

# A column that the label tells this much of, and that cannot be judged, is named.
_WORTH_NAMING = 0.36
# Of so many columns a partner is sought, in tables so wide.
_MOST_PARTNERS_SOUGHT = 10
_WIDEST_FOR_PARTNERS = 200
# What such a column must have to do with the label, its partner, and, given that, the others.
_PARTNER_LABEL = 0.3
_PARTNER_CORRELATION = 0.2
_PARTNER_M = 0.05


class Check(NamedTuple):
    """A reason not to take a column for an effect of the label.

    Attributes:
        passes: Gives the mask of the columns to which the reason does not apply.
        reason: The reason, after "because".
    """

    passes: Callable[[Marks], Mask]
    reason: str


def _tells_of_label(marks: Marks) -> Mask:
    return marks.label > LEAST_LABEL


def _others_tell_of_it(marks: Marks) -> Mask:
    return (marks.m >= LEAST_M) & marks.are_certain(marks.m_p)


def _label_tells_all(marks: Marks) -> Mask:
    small = marks.ratio < MOST_RATIO
    surely = marks.k + marks.k_error < MOST_RATIO_BY_CHANCE * marks.m
    return small & surely & (marks.k_p > LEAST_K_P)


def _nothing_beyond_label(marks: Marks) -> Mask:
    return marks.beyond < MOST_BEYOND * marks.through


def _stands_alone(marks: Marks) -> Mask:
    """Ask that no other column is nearly as much of an effect, as where columns share a factor.

    It is not asked of a column of which the label explains more than half, nor does such a one
    count against others: a table may hold several leaks.
    """
    clear = marks.label > CLEAR_LABEL
    likely = clear & _label_tells_all(marks) & _nothing_beyond_label(marks)
    related = (marks.label > 0.05) & (marks.m_p < 1e-4)
    ratio = np.where(related & ~likely, marks.ratio, np.inf)
    return clear | (_smallest_of_others(ratio) > LEAST_RATIO_OF_OTHERS)


def _smallest_of_others(values: FloatArray) -> FloatArray:
    """Return, for each value, the smallest of all the others."""
    smallest, second = np.sort(np.append(values, [np.inf, np.inf]))[:2]
    return np.asarray(np.where(values == smallest, second, smallest))


def _has_others(marks: Marks) -> Mask:
    return np.full(len(marks.m), len(marks.m) > LEAST_OTHERS)


#: In the order in which they are asked; the first that a column fails is the reason given.
CHECKS = (
    Check(_tells_of_label, "the label tells little of it"),
    Check(_has_others, "fewer than three other columns could be judged"),
    Check(_others_tell_of_it, "the other columns tell too little of it to judge"),
    Check(_label_tells_all, "given the label it still goes with other columns, as a cause does"),
    Check(
        _nothing_beyond_label,
        "given the label it still goes with what the others predict of the label",
    ),
    Check(_stands_alone, "other columns look nearly like it, as where columns share a factor"),
)


#: Asked last, of all columns that pass the checks together: a cause must have something to collide
#: with. Where y has one cause, the cause and an effect read the same from both ends.
OTHERS_ADD_NOTHING = "without such columns nothing is left that tells of the label"


@dataclass(frozen=True)
class Judgement:
    """What the checks say of each column.

    Attributes:
        leaks: Mask of the columns that pass every check.
        suspects: Mask of the columns that come close: leaks among them.
        undecided: Mask of columns that the label tells much of and that cannot be judged.
        reasons: Why a column is not taken for a leak; empty for the leaks.
    """

    leaks: Mask
    suspects: Mask
    undecided: Mask
    reasons: list[str]


def judge(moments: Moments, marks: Marks) -> Judgement:
    """Ask every check of every column."""
    passed = np.array([check.passes(marks) for check in CHECKS])
    leaks: Mask = np.asarray(passed.all(axis=0))
    reasons = [_first_reason(column) for column in passed.T]
    if leaks.any() and not adds_to_label(moments, np.flatnonzero(leaks)):
        reasons = [reason or OTHERS_ADD_NOTHING for reason in reasons]
        leaks = np.zeros_like(leaks)
    judged = _has_others(marks) & _others_tell_of_it(marks)
    suspects = leaks | (_come_close(marks) & judged)
    suspects |= _leaks_with_partner(moments, marks, judged & ~suspects)
    undecided = (marks.label > _WORTH_NAMING) & ~judged & ~suspects
    return Judgement(leaks, suspects, undecided, reasons)


def _come_close(marks: Marks) -> Mask:
    mostly_by_label = (marks.ratio < SUSPECT_RATIO) & (marks.share > 0.5)
    return mostly_by_label & _tells_of_label(marks)


def _first_reason(passed: Mask) -> str:
    failed = (check.reason for check, ok in zip(CHECKS, passed, strict=True) if not ok)
    return next(failed, "")


def _leaks_with_partner(moments: Moments, marks: Marks, candidates: Mask) -> Mask:
    """Return the columns that look like an effect of the label and of one other column together.

    So do a column computed from the label and another one, a noisy copy of a leak, and two columns
    whose sum is the label. Honest columns do as well where each column has to do with few others,
    so nothing is dropped for it.
    """
    leaks = np.zeros(len(candidates), dtype=bool)
    if moments.num_columns > _WIDEST_FOR_PARTNERS:
        return leaks
    chosen = np.flatnonzero(candidates & (marks.label > _PARTNER_LABEL))
    by_label = chosen[np.argsort(-marks.label[chosen], kind="stable")]
    for j in by_label[:_MOST_PARTNERS_SOUGHT].tolist():
        correlation = _correlation_given_label(moments, j)
        partner = int(np.argmax(correlation))
        if correlation[partner] < _PARTNER_CORRELATION:
            continue
        given = measure(moments.given_column(partner))
        look_like_leaks = _others_tell_of_it(given) & _label_tells_all(given)
        look_like_leaks &= given.m > _PARTNER_M
        leaks[j] = np.insert(look_like_leaks, partner, False)[j]
    return leaks


def _correlation_given_label(moments: Moments, j: int) -> FloatArray:
    """Return how much column j correlates with every other, either way, given the label."""
    given = moments.given_label()
    variances = np.maximum(np.diag(given) * given[j, j], 1e-12)
    correlation: FloatArray = np.abs(given[j] / np.sqrt(variances))
    correlation[j] = 0.0
    return correlation
