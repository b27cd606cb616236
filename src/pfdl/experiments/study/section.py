"""The study in the report: for every data set each method beside plain training, where the contexts shift most."""

from __future__ import annotations

import math

import pandas as pd

from pfdl._internal.runs import Run
from pfdl.experiments.pairing import PairedDifference, paired
from pfdl.experiments.study.report import rows_of, tests_of
from pfdl.experiments.study.rows import BASELINES, ENTRIES
from pfdl.report import tables
from pfdl.report.page import Block, Heading, Section, Text
from pfdl.report.plots import Plot, Series
from pfdl.report.reading import read_results
from pfdl.report.sections.statistics import difference_cell, mean_cell
from pfdl.report.tables import Missing, Number, Table

KIND = "study"
TITLE = "Study of methods under context shift"
INTRODUCTION = (
    "Many small trainings, the same for every method but the objective: from the same first weights, on the same "
    "splits. The last epoch counts; nothing is selected. Oracles know the true contexts of training samples."
)


def build(run: Run, problems: list[str]) -> Section:
    """The section of one run."""
    results = read_results(
        run,
        names=["dataset", "row", "test"],
        numbers=["seed", "value"],
        keys=["dataset", "row", "seed", "test"],
        problems=problems,
    )
    results = results[results["row"].isin(ENTRIES)]
    blocks: list[Block] = [Text(INTRODUCTION)]
    if not len(results):
        return Section(TITLE, [*blocks, Text("No finished results yet.", "warning")])
    findings = []
    for name, part in results.groupby("dataset", sort=False):
        blocks.append(Heading(str(name)))
        differences = _differences(part)
        if differences:
            plot = _plot(tests_of(part)[0], differences)
            findings.append(f"{name}: {plot.summary}")
            blocks.append(plot)
        blocks.append(_table(str(name), part))
    return Section(TITLE, blocks, " ".join(findings))


def _differences(part: pd.DataFrame) -> dict[str, PairedDifference]:
    """By the title of the method, points gained on plain training where the contexts shift most."""
    hardest = tests_of(part)[0]
    found = {}
    for row in rows_of(part):
        baseline = BASELINES.get(row, "erm")
        difference = paired(_cells(part, row, hardest), _cells(part, baseline, hardest))
        if difference is not None and row not in ("erm", *BASELINES.values()):
            found[ENTRIES[row].title] = difference
    return found


def _plot(test: str, differences: dict[str, PairedDifference]) -> Plot:
    beyond = [
        f"{title} ({Number(one.mean, signed=True).printed})"
        for title, one in differences.items()
        if one.pairs > 1 and one.is_beyond_chance(len(differences))
    ]
    basis = f"95 % sure over {len(differences)} comparison{'s' * (len(differences) > 1)}"
    summary = f"Beyond chance ({basis}): {'; '.join(beyond)}." if beyond else f"Nothing is beyond chance ({basis})."
    errors = [one.standard_error for one in differences.values()]
    drawable = None if any(map(math.isnan, errors)) else errors
    means = [one.mean for one in differences.values()]
    line = Series("difference to plain training", list(differences), means, drawable, style="markers")
    title = f"Difference to plain training at {test}, where contexts shift most, with standard errors"
    return Plot(title, summary, "", "difference, points", [line], with_table=False)


def _table(dataset: str, part: pd.DataFrame) -> Table:
    tests = tests_of(part)
    columns = [name for test in tests for name in (test, f"{test}, difference")]
    lines = []
    for row in rows_of(part):
        cells: list[tables.Cell] = []
        for test in tests:
            ours, baseline = _cells(part, row, test), BASELINES.get(row, "erm")
            cells.append(mean_cell(ours, 1) if len(ours) else Missing())
            difference = None if row == baseline else paired(ours, _cells(part, baseline, test))
            cells.append(difference_cell(difference, 1))
        lines.append(tables.Row(ENTRIES[row].title, tuple(cells)))
    return Table(f"Accuracy in percent, {dataset}", "method", columns, lines)


def _cells(part: pd.DataFrame, row: str, test: str) -> pd.Series[float]:
    chosen = part[(part["row"] == row) & (part["test"] == test)]
    return chosen.set_index("seed")["value"].dropna()
