"""The declared analysis of PFDL phase by phase: the endpoints, comparisons and tests of docs/results/phases.md."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import pandas as pd

from pfdl.report.blocks import Block
from pfdl.report.plots import Plot, Series
from pfdl.report.tables import Cell, Missing, Number, Row, Table
from pfdl_lab.images.rows import DECLARED, RATIOS
from pfdl_lab.images.tables import Measured, title_of
from pfdl_lab.images.testing import CHOSEN, LAST
from pfdl_lab.pairing import PairedDifference, holm, paired
from pfdl_lab.statistics import difference_cell, mean_cell, mean_series

COMPARISONS = (
    ("pfdl", "erm"),
    ("covariance", "erm"),
    ("level-matched", "erm"),
    ("covariance", "level-matched"),
    ("pfdl", "level-matched"),
)
NOISE_FLOOR = ("placebo", "erm")
EARLY = tuple(map(str, range(5, 41, 5)))
ENDPOINTS = {"early": EARLY, "all": tuple(map(str, range(5, 161, 5))), "last": (LAST,), "chosen": (CHOSEN,)}
"""The epochs over which the accuracy of a seed is averaged."""

TESTS = {"1:5": ("1:5",), "5:1": ("5:1",), "mean of the seven ratios": RATIOS}
MARGIN = 1.0
"""Points within which two rows are called equal."""

SIGNIFICANCE = 0.05
NOTE = (
    "Paired differences in points ± standard error, the number of seeds with a positive difference, the p-value of the "
    f"paired t-test and, after Holm's method over all {len(COMPARISONS) * len(ENDPOINTS) * len(TESTS)} declared tests, "
    "its adjusted value; bold: significant at 5 % after Holm. Equal: two one-sided t-tests place the difference within "
    f"± {MARGIN:g} point at 5 %. The placebo is the noise floor and not among the tests."
)


class Judged(NamedTuple):
    """One declared test: the difference, in how many seeds it is positive, and its p-value after Holm's method."""

    difference: PairedDifference | None
    positive: int
    adjusted: float


def endpoint(part: Measured, row: str, when: str, test: str) -> pd.Series[float]:
    """Return an endpoint of a row by the seed: the mean over its epochs and ratios, of seeds that have all of them."""
    parts = [part.of(row, epoch, ratio) for epoch, ratio in product(ENDPOINTS[when], TESTS[test])]
    return pd.concat(parts, axis=1).dropna().mean(axis=1)


def judge(part: Measured) -> dict[tuple[str, str, str, str], Judged]:
    """Return the declared tests by row, rival, endpoint and test."""
    places = [(*pair, when, test) for pair in COMPARISONS for when in ENDPOINTS for test in TESTS]
    found = {}
    for row, rival, when, test in places:
        ours, theirs = endpoint(part, row, when, test), endpoint(part, rival, when, test)
        found[row, rival, when, test] = (paired(ours, theirs), int((ours - theirs).gt(0).sum()))
    p_values = [float("nan") if one is None else one.p_value for one, _ in found.values()]
    adjusted = holm(p_values)
    return {place: Judged(*one, value) for (place, one), value in zip(found.items(), adjusted, strict=True)}


def blocks(part: Measured) -> list[Block]:
    """Return the declared tables and the pictures of accuracy along the training; nothing without the declared rows."""
    if not set(DECLARED) <= set(part.rows) or not {int(epoch) for epoch in EARLY} <= set(part.epochs):
        return []
    judged, shown = judge(part), list[Block]()
    for test in TESTS:
        shown += [_endpoints(part, test), _comparisons(part, test, judged)]
    return [*shown, *(_along(part, test) for test in TESTS)]


def _endpoints(part: Measured, test: str) -> Table:
    lines = []
    for row in DECLARED:
        values = [endpoint(part, row, when, test) for when in ENDPOINTS]
        cells = [Number(max(map(len, values)), digits=0), *(mean_cell(one, 1) for one in values)]
        lines.append(Row(title_of(row), tuple(cells)))
    return Table(f"Accuracy in percent by endpoint: {test}", "row", ["seeds", *ENDPOINTS], lines)


def _comparisons(part: Measured, test: str, judged: dict[tuple[str, str, str, str], Judged]) -> Table:
    lines = [
        Row(_names(pair), tuple(_judged_cell(judged[(*pair, when, test)]) for when in ENDPOINTS))
        for pair in COMPARISONS
    ]
    floor = [paired(*(endpoint(part, row, when, test) for row in NOISE_FLOOR)) for when in ENDPOINTS]
    lines.append(Row(_names(NOISE_FLOOR), tuple(difference_cell(one, 2) for one in floor), quiet=True))
    note = NOTE if test == next(iter(TESTS)) else ""
    return Table(f"Declared comparisons: {test}", "difference", list(ENDPOINTS), lines, note=note)


def _names(pair: Sequence[str]) -> str:
    return " − ".join(map(title_of, pair))


def _judged_cell(judged: Judged) -> Cell:
    difference = judged.difference
    if difference is None or difference.pairs < 2:
        return Missing()
    strong = judged.adjusted <= SIGNIFICANCE
    is_equal = difference.equivalence_p_value(MARGIN) <= SIGNIFICANCE
    word = "equal" if is_equal else "" if strong else "no difference shown"
    figures = f"p = {difference.p_value:.2g}, Holm {judged.adjusted:.2g}"
    remark = ", ".join(filter(None, (f"{judged.positive} of {difference.pairs}", figures, word)))
    return difference_cell(difference, 2, strong=strong, remark=remark)


def _along(part: Measured, test: str) -> Plot:
    """Draw the accuracy of the declared rows along the training."""
    series = []
    for number, row in enumerate(DECLARED):
        epochs = [epoch for epoch in part.epochs if epoch % 5 == 0]
        by_ratio = [[part.of(row, epoch, ratio) for ratio in TESTS[test]] for epoch in epochs]
        means = {epoch: pd.concat(one, axis=1).mean(axis=1) for epoch, one in zip(epochs, by_ratio, strict=True)}
        series.append(mean_series(title_of(row), means, number, "lines"))
    drawn: list[Series] = [one for one in series if one is not None]
    summary = "Mean over the seeds, with standard errors, tested after every fifth epoch."
    return Plot(f"Accuracy along the training, {test}", summary, "epoch", "accuracy, %", drawn)
