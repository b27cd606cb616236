"""Analyses that were declared before their runs: endpoints, comparisons and tests of pages under
docs/results.

The pages are phase by phase, the paper's Table II, short budgets, and pretrained networks. All of
them judge paired differences by Holm's method over all the tests that a declaration names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import pandas as pd

from pfdl_lab.images.rows import DECLARED, GRID, LISTS, NOT_RUN, PAPER, RATIOS, ROWS
from pfdl_lab.images.run import NUMBER
from pfdl_lab.images.tables import Measured, title_of
from pfdl_lab.images.testing import CHOSEN, LAST, VALIDATION
from pfdl_lab.pairing import paired
from pfdl_lab.report.blocks import Block, Cell, Heading, Missing, Number, Plot, Table, TableLine
from pfdl_lab.report.lines import plot_lines
from pfdl_lab.statistics import (
    TestResult,
    difference_cell,
    judge,
    judged_cell,
    judged_note,
    mean_cell,
    mean_series,
)

Pair = tuple[str, str]
EARLY = tuple(map(str, range(5, 41, 5)))
ENDPOINTS = {
    "early": EARLY,
    "all": tuple(map(str, range(5, 161, 5))),
    "last": (LAST,),
    "chosen": (CHOSEN,),
}
"""The epochs over which phase by phase averages the accuracy of a seed."""

TESTS = {"1:5": ("1:5",), "5:1": ("5:1",), "mean of the seven ratios": RATIOS}
BOTH_ENDS = {test: TESTS[test] for test in ("1:5", "5:1")}
SHIFT_AND_MEAN = {test: TESTS[test] for test in ("1:5", "mean of the seven ratios")}
PHASES: tuple[Pair, ...] = (
    ("pfdl", "erm"),
    ("covariance", "erm"),
    ("level-matched", "erm"),
    ("covariance", "level-matched"),
    ("pfdl", "level-matched"),
)
NOISE_FLOOR = ("placebo", "erm")
FORMS: tuple[Pair, ...] = (
    ("pfdl-sgd", "erm"),
    ("covariance-indexed", "erm"),
    ("standardised-indexed", "erm"),
    ("pfdl-sgd", "pfdl"),
    ("covariance-indexed", "covariance"),
)
THIRD: tuple[Pair, ...] = (("covariance-third", "erm"), ("covariance-third", "covariance"))
CONVERGED: tuple[Pair, ...] = (
    ("sampler", "erm"),
    ("sampler", "sampler-classes"),
    ("sampler-known", "sampler-classes"),
    ("dfr", "erm"),
)
BY_SAMPLE: tuple[str, ...] = ("dwr-samples", "dwr-published")
"""DWR with one weight per training sample: declared one after the other, three tests each."""
CLASSES: tuple[Pair, ...] = (
    ("sampler-classes", "erm"),
    ("sampler", "sampler-classes"),
    ("sampler-known", "sampler-classes"),
)
PRACTICE: tuple[Pair, ...] = (*CLASSES, ("dfr-held-out", "erm"), ("dfr-held-out-known", "erm"))
HALF: tuple[Pair, ...] = (("dfr-held-out-known", "dfr-held-out-classes"),)
ELSE_CLASSES: tuple[Pair, ...] = (("sampler-or-classes", "sampler-classes"),)
TABLE_II: tuple[Pair, ...] = (*((row, "erm") for row in PAPER if row != "erm"), ("cn-cnbb", "cn"))


class Place(NamedTuple):
    """Where an endpoint is found: the results of a data set, and the epochs over which it is a
    mean.
    """

    part: Measured
    epochs: tuple[str, ...]


class Declared(NamedTuple):
    """One declaration: the pairs of rows that are compared, at which endpoints, and at which
    ratios.
    """

    comparisons: tuple[Pair, ...]
    places: Mapping[str, Place]
    tests: Mapping[str, tuple[str, ...]] = TESTS

    def endpoint(self, row: str, when: str, test: str) -> pd.Series[float]:
        """Return an endpoint by the seed: the mean over its epochs and ratios, of seeds that have
        all of them.
        """
        part, epochs = self.places[when]
        if row == "sampler-or-classes":
            accepted = part.of("sampler", LAST, NUMBER) > 1
            return self.endpoint("sampler", when, test).where(
                accepted, self.endpoint("sampler-classes", when, test)
            )
        return part.mean(row, epochs, self.tests[test])

    def judge(self) -> dict[tuple[str, str, str, str], TestResult]:
        """Return the declared tests by row, rival, endpoint and test."""
        found = {
            (*pair, when, test): paired(*(self.endpoint(row, when, test) for row in pair))
            for pair, when, test in product(self.comparisons, self.places, self.tests)
        }
        return dict(zip(found, judge(list(found.values())), strict=True))

    def blocks(self, floor: Pair | None = None) -> list[Block]:
        """Return for each test the accuracies and the comparisons; the noise floor is shown and not
        judged.
        """
        judged, shown = self.judge(), list[Block]()
        compared = {row for pair in (*self.comparisons, floor or ()) for row in pair}
        rows = [row for row in dict.fromkeys([*DECLARED, *ROWS, *NOT_RUN]) if row in compared]
        for test in self.tests:
            lines = []
            for row in rows:
                values = [self.endpoint(row, when, test) for when in self.places]
                cells = [
                    Number(max(map(len, values)), digits=0),
                    *(mean_cell(one, 1) for one in values),
                ]
                lines.append(TableLine(title_of(row), tuple(cells)))
            shown.append(
                Table(
                    f"Accuracy in percent by endpoint: {test}",
                    "row",
                    ["seeds", *self.places],
                    lines,
                )
            )
            lines = [
                TableLine(
                    _names(pair),
                    tuple(judged_cell(judged[(*pair, when, test)]) for when in self.places),
                )
                for pair in self.comparisons
            ]
            if floor:
                noise = [
                    paired(*(self.endpoint(row, when, test) for row in floor))
                    for when in self.places
                ]
                lines.append(
                    TableLine(
                        _names(floor), tuple(difference_cell(one, 2) for one in noise), quiet=True
                    )
                )
            note = _note(len(judged), floor) if test == next(iter(self.tests)) else ""
            shown.append(
                Table(
                    f"Declared comparisons: {test}",
                    "difference",
                    list(self.places),
                    lines,
                    note=note,
                )
            )
        return shown


def blocks(part: Measured) -> list[Block]:
    """Return what was declared of one data set; nothing of rows of which nothing was."""
    rows, epochs, last = (
        set(part.rows),
        set(map(str, part.epochs)),
        {"last epoch": Place(part, (LAST,))},
    )
    if set(DECLARED) <= rows and set(EARLY) <= epochs:
        shown = [
            *phase_by_phase(part).blocks(NOISE_FLOOR),
            _epochs_needed(part),
            *(plot for test in TESTS for plot in _along(part, test)),
        ]
        others = {when: Place(part, ENDPOINTS[when]) for when in ("early", "last")}
        return [
            *shown,
            *_if_there(rows, "Other forms of g", Declared(FORMS, others, SHIFT_AND_MEAN)),
        ]
    if set(PAPER) <= rows:
        of_dwr = {title_of(row): Declared(((row, "erm"),), last) for row in BY_SAMPLE}
        return [
            *Declared(TABLE_II, last).blocks(),
            *(block for one in of_dwr.items() for block in _if_there(rows, *one)),
        ]
    if rows & set(GRID):
        return [
            *same_sgd(part).blocks(),
            Heading("Each at the setting that held-out images choose"),
            *best_sgd(part).blocks(),
        ]
    return Declared(PRACTICE, last, BOTH_ENDS).blocks() if set(LISTS["practice"]) <= rows else []


def _if_there(rows: set[str], heading: str, declared: Declared) -> list[Block]:
    """Return the tables of a declaration under a heading, if its rows were trained."""
    wanted = {row for pair in declared.comparisons for row in pair}
    return [Heading(heading), *declared.blocks()] if wanted <= rows else []


def phase_by_phase(part: Measured) -> Declared:
    """Return the declaration of docs/results/phases.md."""
    return Declared(PHASES, {when: Place(part, epochs) for when, epochs in ENDPOINTS.items()})


def same_sgd(part: Measured) -> Declared:
    """Return what docs/results/budgets.md declared of settings of SGD: each row against ERM at the
    same.
    """
    pairs = tuple(
        (row, GRID[row].baseline) for row in GRID if row in part.rows and row != GRID[row].baseline
    )
    return Declared(pairs, {"last epoch": Place(part, (LAST,))}, SHIFT_AND_MEAN)


def best_sgd(part: Measured) -> Declared:
    """Return the same of rows that each have the setting with the highest mean validation
    accuracy.
    """

    def best(method: str) -> str:
        settings = [row for row in GRID if row in part.rows and row.startswith(f"{method}-wd")]
        return max(settings, key=lambda row: float(part.of(row, CHOSEN, VALIDATION).mean()))

    pairs = tuple((best(method), best("erm")) for method in ("pfdl", "covariance"))
    return Declared(pairs, {"chosen epoch": Place(part, (CHOSEN,))}, SHIFT_AND_MEAN)


NAMED: tuple[tuple[str, tuple[Pair, ...], tuple[str, ...], Mapping[str, tuple[str, ...]]], ...] = (
    ("PACS, g by SGD, fresh seeds", FORMS[:1], ("pacs-160-epochs-fresh-seeds",), SHIFT_AND_MEAN),
    ("PACS, 20 and 40 epochs", PHASES, ("pacs-20-epochs", "pacs-40-epochs"), TESTS),
    ("PACS, 20 epochs, fresh seeds", PHASES, ("pacs-20-epochs-confirmation",), SHIFT_AND_MEAN),
    ("PACS, 80 epochs", PHASES, ("pacs-80-epochs",), TESTS),
    (
        "PetScapes",
        PHASES,
        ("petscapes-20-epochs", "petscapes-40-epochs", "petscapes-80-epochs"),
        TESTS,
    ),
    (
        "Switched off after a third",
        THIRD,
        ("pacs-40-epochs", "pacs-80-epochs", "pacs-160-epochs"),
        SHIFT_AND_MEAN,
    ),
    (
        "Shapes, 240 epochs",
        CONVERGED,
        ("shapes-240-epochs", "shapes-0.75-240-epochs"),
        {"1:5": TESTS["1:5"]},
    ),
    ("PACS, ResNet-18, beyond balanced classes", CLASSES, ("pacs-beyond-classes",), BOTH_ENDS),
    (
        "PetScapes, ResNet-18, beyond balanced classes",
        CLASSES,
        ("petscapes-beyond-classes",),
        BOTH_ENDS,
    ),
    ("PACS as features, contexts by the later rule", CLASSES[1:2], ("pacs-later-rule",), BOTH_ENDS),
    (
        "PACS fine-tuned, contexts by the later rule",
        CLASSES[1:2],
        ("pacs-later-rule-fine-tuned",),
        BOTH_ENDS,
    ),
    (
        "PACS as features, refitted by the later rule",
        PRACTICE[3:],
        ("pacs-later-rule-refitted",),
        BOTH_ENDS,
    ),
    (
        "PetScapes as features, refitted on half of the images",
        HALF,
        ("petscapes-half-held-out",),
        TESTS,
    ),
    (
        "PACS as features, else balanced classes",
        ELSE_CLASSES,
        ("pacs-else-classes-30-epochs",),
        TESTS,
    ),
)
"""What pages declared of results by the name of their data: the title, the comparisons, the data
and the tests; of docs/results/phases.md (fresh seeds), budgets.md, images-contexts.md (shapes,
balanced classes) and practice.md (the later rule)."""


def by_name(parts: Sequence[Measured]) -> list[Block]:
    """Return what was declared of results by the name of their data, as far as there are
    results.
    """
    shown, measured = list[Block](), {part.data: part for part in parts}
    for title, comparisons, data, tests in NAMED:
        places = {name: Place(measured[name], (LAST,)) for name in data if name in measured}
        if places:
            shown += [Heading(title), *Declared(comparisons, places, tests).blocks()]
    return shown


def _note(tests: int, floor: Pair | None) -> str:
    placebo = " The placebo is the noise floor and not among the tests." if floor else ""
    return judged_note(f"{tests} declared tests") + placebo


def _names(pair: Sequence[str]) -> str:
    return " − ".join(map(title_of, pair))


def _every_fifth(part: Measured, row: str, test: str) -> dict[int, pd.Series[float]]:
    """Return the accuracies of a row by the seed, after every fifth epoch."""
    return {epoch: part.mean(row, (epoch,), TESTS[test]) for epoch in part.epochs if epoch % 5 == 0}


def _epochs_needed(part: Measured, test: str = "mean of the seven ratios") -> Table:
    """Return after how many epochs a row reaches ERM's accuracy for good; a description, without a
    test.
    """
    means = {
        row: {epoch: values.mean() for epoch, values in _every_fifth(part, row, test).items()}
        for row in DECLARED
    }
    goals = [epoch for epoch in (20, 40, 80, 160) if epoch in means["erm"]]
    lines = []
    for row in DECLARED:
        cells: list[Cell] = []
        for goal in goals:
            below = [epoch for epoch, mean in means[row].items() if not mean >= means["erm"][goal]]
            reached = [epoch for epoch in means[row] if not below or epoch > max(below)]
            cells.append(Number(min(reached), digits=0) if reached else Missing("not reached"))
        lines.append(TableLine(title_of(row), tuple(cells)))
    columns = [f"of epoch {goal}: {means['erm'][goal]:.1f} %" for goal in goals]
    return Table(
        f"Epoch from which on the mean accuracy stays at or above ERM's, {test}",
        "row",
        columns,
        lines,
    )


def _along(part: Measured, test: str) -> list[Plot]:
    """Draw the accuracy of the declared rows along the training."""
    series = [
        mean_series(title_of(row), _every_fifth(part, row, test), number, "lines")
        for number, row in enumerate(DECLARED)
    ]
    summary = "Mean over the seeds, with standard errors, tested after every fifth epoch."
    return plot_lines(
        f"Accuracy along the training, {test}", summary, "epoch", "accuracy, %", series
    )
