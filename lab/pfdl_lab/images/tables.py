"""The tables of the experiment: accuracies beside the paper's, paired differences, and what the
penalty is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product

import numpy as np
import pandas as pd

from pfdl.objectives import make_objective
from pfdl.objectives.weightings import Uniform
from pfdl_lab.images.config import NICO
from pfdl_lab.images.data import SAME, SHIFTED, WHOLE
from pfdl_lab.images.rows import RATIOS, ROWS, find_row
from pfdl_lab.images.run import AGREEMENT, DIVERGED, ESS, NUMBER, REFITTED
from pfdl_lab.images.testing import CHOSEN, LAST, VALIDATION, WORST_CLASS, WORST_GROUP
from pfdl_lab.pairing import PairedDifference, paired
from pfdl_lab.report.blocks import Cell, Missing, Number, Table, TableLine
from pfdl_lab.statistics import NOTHING, by_seed, difference_cell, mean_cell

TESTS = (*RATIOS, SHIFTED, SAME, WHOLE, WORST_GROUP, WORST_CLASS)
"""All tests of accuracy, the hardest of each data set first."""

ACTS_BELOW = 0.999
"""An effective sample size, as a share of the batch, from which on a weighting is plain training by
another name.
"""

WHEN = {LAST: "at the last epoch", CHOSEN: "at the epoch that held-out samples choose"}
PROBES = {
    "L_decorr": "L_decorr",
    "level_part": "level part",
    "covariance_part": "covariance part",
    "cosine_level_penalty": "cosine with the level penalty's gradient",
    "covariance_gradient": "covariance part's gradient, share",
    "R2": "R² of g",
}
SHOWN_EPOCHS = (1, 2, 5, 10, 20, 40, 60, 80, 90, 120, 140, 160)
"""A dozen epochs of the tables along the training; the plots have all."""

NOTE = (
    "± is a standard error, k of n the number of seeds with a positive difference; bold where the"
    " 95 % interval of Student's t leaves out zero, uncorrected. A weighting that changes the"
    " effective sample size by less than 0.1 % did not act. A training that diverged counts with"
    " what was left of it."
)
PAPER_NOTE = (
    "Lines in the paper are the paper's figures on NICO. Its ResNet-50 row is commented out in its"
    " source, and it does not say on which network it ran DWR."
)


@dataclass(frozen=True, eq=False)
class Measured:
    """The results on one data set with one backbone.

    Attributes:
        data: Name of the data set.
        backbone: The network.
        values: The values of a row, epoch and test, by their seed.
    """

    data: str
    backbone: str
    values: dict[tuple[str, str, str], pd.Series]

    @property
    def name(self) -> str:
        """What it is called in headings."""
        return f"{self.data}, {self.backbone}"

    def of(self, row: str, epoch: str | int, test: str) -> pd.Series[float]:
        """Return the values by their seed; none where nothing was measured."""
        return self.values.get((row, str(epoch), test), NOTHING)

    @cache  # noqa: B019, a process makes few pages
    def mean(
        self, row: str, epochs: tuple[str | int, ...], tests: tuple[str, ...]
    ) -> pd.Series[float]:
        """Return means over epochs and tests by the seed, of the seeds that have all of them."""
        parts = [self.of(row, epoch, test) for epoch, test in product(epochs, tests)]
        index = parts[0].index
        if all(one.index.equals(index) for one in parts):  # as below, in a twentieth of the time
            return pd.Series(np.mean([one.to_numpy() for one in parts], axis=0), index, dtype=float)
        return pd.concat(parts, axis=1).dropna().mean(axis=1)

    @cached_property
    def rows(self) -> list[str]:
        """Return the rows there are, in the order in which rows are defined."""
        present = dict.fromkeys(row for row, _, _ in self.values)
        return [
            *(row for row in ROWS if row in present),
            *(row for row in present if row not in ROWS),
        ]

    @cached_property
    def tests(self) -> list[str]:
        """Return the tests of accuracy there are, the hardest first."""
        present = {test for _, epoch, test in self.values if epoch in WHEN}
        return [test for test in TESTS if test in present]

    @cached_property
    def epochs(self) -> list[int]:
        """Return the epochs after which networks were tested along the training."""
        return sorted({int(epoch) for _, epoch, _ in self.values if epoch not in WHEN})

    def has(self, epoch: str) -> bool:
        """Return whether an epoch that counts was tested."""
        return any(when == epoch for _, when, _ in self.values)

    def along(self, row: str, name: str) -> dict[int, pd.Series[float]]:
        """Return the values of a row along the training, by the epoch, where there are any."""
        found = {epoch: self.of(row, epoch, name) for epoch in self.epochs}
        return {epoch: values for epoch, values in found.items() if len(values)}

    def difference(
        self, row: str, rival: str, epoch: str | int, test: str
    ) -> PairedDifference | None:
        """Return the paired difference of two rows."""
        return paired(self.of(row, epoch, test), self.of(rival, epoch, test))

    def share(self, row: str) -> float | None:
        """Return the effective sample size of a weighting as a share of the batch; None for other
        rows.
        """
        sizes = self.of(row, LAST, ESS)
        return (
            float(sizes.mean())
            if len(sizes) and _weighs(find_row(row, measured=True).objective)
            else None
        )

    def difference_cell(self, row: str, rival: str, epoch: str, test: str) -> Cell:
        """Return a paired difference in points as a cell, with what qualifies it."""
        difference = self.difference(row, rival, epoch, test)
        if difference is None:
            return Missing("no pairs") if len(self.of(row, epoch, test)) else Missing()
        if difference.pairs == 1:
            return difference_cell(difference, 2, remark="one seed")
        remarks = [f"{difference.positive} of {difference.pairs}"]
        is_idle = (self.share(row) or 0.0) > ACTS_BELOW
        remarks += ["did not act"] if is_idle else []
        if diverged := len(self.of(row, LAST, DIVERGED)):
            remarks.append(f"{diverged} diverged")
        refitted = self.of(row, LAST, REFITTED)
        remarks += (
            [] if refitted.all() else [f"refitted in {refitted.sum():.0f} of {len(refitted)}"]
        )
        strong = difference.is_beyond_chance() and not is_idle
        return difference_cell(difference, 2, strong=strong, remark=", ".join(remarks))


@cache
def _weighs(objective: str) -> bool:
    return not isinstance(
        make_objective(objective, 2, num_classes=2, num_contexts=2).weighting, Uniform
    )


def measure(results: pd.DataFrame) -> list[Measured]:
    """Return the results by data set and backbone, for look-up."""
    return [
        Measured(str(data), str(backbone), by_seed(part, "row", "epoch", "test"))
        for (data, backbone), part in results.dropna(subset=["value"]).groupby(
            ["data", "backbone"], sort=False
        )
    ]


def title_of(row: str) -> str:
    """Return the name of a row in tables."""
    return find_row(row, measured=True).title


def accuracies(part: Measured, epoch: str, *, with_paper: bool) -> Table:
    """Return the accuracies of all rows; on request below each those that the paper has for the
    same network.
    """
    extra = _extra_columns(part)
    judged = [VALIDATION] if epoch == CHOSEN else []
    lines = []
    for row in part.rows:
        what = find_row(row, measured=True)
        cells: list[Cell] = [Number(len(part.of(row, epoch, part.tests[0])), digits=0)]
        cells += [mean_cell(part.of(row, epoch, test), 1) for test in (*part.tests, *judged)]
        cells += [_extra_cell(part, row, name) for name in extra]
        lines.append(TableLine(what.title, tuple(cells)))
        is_same_network = what.backbone or part.backbone == NICO["backbone"]
        if with_paper and what.paper and is_same_network:
            lines.append(_of_the_paper(part, what.paper, len(judged) + len(extra)))
    note = PAPER_NOTE if any(line.quiet for line in lines) else ""
    columns = ["seeds", *part.tests, *judged, *extra]
    return Table(
        f"Accuracy in percent {WHEN[epoch]}, {part.name}", "row", columns, lines, note=note
    )


def _extra_columns(part: Measured) -> list[str]:
    """Return what is measured beside accuracies: of weightings, and of inferred contexts."""
    columns = []
    if any(part.share(row) is not None for row in part.rows):
        columns.append(ESS)
    if any(len(part.of(row, LAST, NUMBER)) for row in part.rows):
        columns += [NUMBER, AGREEMENT]
    return columns


def _of_the_paper(part: Measured, paper: Sequence[float | None], left: int) -> TableLine:
    """Return the line of the paper's figures, followed by some empty cells."""
    printed = dict(zip(RATIOS, paper, strict=True))
    absent = Missing("not in the paper")
    cells: list[Cell] = [absent]
    for test in part.tests:
        figure = printed.get(test)
        cells.append(absent if figure is None else Number(figure, digits=2))
    return TableLine("in the paper, on NICO", (*cells, *[absent] * left), quiet=True)


def _extra_cell(part: Measured, row: str, name: str) -> Cell:
    if name == ESS:
        share = part.share(row)
        if share is None:
            return Missing("no weighting")
        return Number(share, digits=4, remark="did not act" if share > ACTS_BELOW else "")
    values = part.of(row, LAST, name)
    if not len(part.of(row, LAST, NUMBER)):
        return Missing("not inferred")
    return Number(values.mean(), digits=2) if len(values) else Missing("true contexts not known")


def differences(part: Measured, epoch: str) -> Table | None:
    """Return the paired differences of each row and the plain training it is compared with; None
    without any.
    """
    pairs = [(row, find_row(row, measured=True).baseline) for row in part.rows]
    pairs += [("level", "pfdl")] if {"level", "pfdl"} <= set(part.rows) else []
    lines = []
    for row, rival in pairs:
        if row != rival and len(part.of(row, epoch, part.tests[0])):
            cells = [part.difference_cell(row, rival, epoch, test) for test in part.tests]
            lines.append(TableLine(f"{title_of(row)} − {title_of(rival)}", tuple(cells)))
    if not lines:
        return None
    return Table(
        f"Paired differences in points {WHEN[epoch]}, {part.name}",
        "difference",
        part.tests,
        lines,
        note=NOTE,
    )


def probes(part: Measured) -> Table | None:
    """Return what the penalty is made of along the training; None where no penalty was probed."""
    lines = []
    for row in part.rows:
        measured = {name: part.along(row, name) for name in PROBES}
        for epoch in (epoch for epoch in measured["L_decorr"] if epoch in SHOWN_EPOCHS):
            cells = [
                (
                    Number(
                        float(np.mean(values[epoch])),
                        digits=2 if name in ("cosine_level_penalty", "R2") else 5,
                    )
                    if epoch in values
                    else Missing()
                )
                for name, values in measured.items()
            ]
            lines.append(TableLine(f"{title_of(row)}, epoch {epoch}", tuple(cells)))
    caption = f"What the penalty is made of along the training, {part.name}; mean over the seeds"
    return Table(caption, "row, epoch", list(PROBES.values()), lines) if lines else None
