"""The study in the report: for every data set each method beside plain training, where the contexts shift most."""

from __future__ import annotations

import math

import pandas as pd

from pfdl.experiments.study_rows import BASELINES, ENTRIES
from pfdl.report import tables
from pfdl.report.page import Block, Heading, Section, Text
from pfdl.report.plots import Plot, Series
from pfdl.report.reading import read_results
from pfdl.report.sections.statistics import difference_cell, mean_cell, paired
from pfdl.report.study import NOT_ACCURACY
from pfdl.report.tables import Missing, Number, Table
from pfdl.runs import Run
from pfdl.selection import PairedDifference

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
        names=["arena", "row", "test"],
        numbers=["seed", "value"],
        keys=["arena", "row", "seed", "test"],
        problems=problems,
    )
    results = results[results["row"].isin(ENTRIES)]
    blocks: list[Block] = [Text(INTRODUCTION)]
    if not len(results):
        return Section(TITLE, [*blocks, Text("No finished results yet.", "warning")])
    arenas = {str(name): part for name, part in results.groupby("arena", sort=False)}
    plot = _differences_plot(arenas)
    if plot is not None:
        blocks.append(plot)
    for name, part in arenas.items():
        blocks += [Heading(name), _table(name, part)]
    return Section(TITLE, blocks, "" if plot is None else plot.summary)


def _differences_plot(arenas: dict[str, pd.DataFrame]) -> Plot | None:
    """Points gained on plain training where the contexts shift most."""
    found: dict[str, dict[str, PairedDifference]] = {}
    for arena, part in arenas.items():
        hardest = _tests(part)[0]
        for row in dict.fromkeys(part["row"]):
            baseline = BASELINES.get(row, "erm")
            difference = paired(_cells(part, row, hardest), _cells(part, baseline, hardest))
            if difference is not None and row not in ("erm", *BASELINES.values()):
                found.setdefault(row, {})[arena] = difference
    if not found:
        return None
    series = [_series(ENTRIES[row].title, differences) for row, differences in found.items()]
    title = "Difference to plain training where the contexts shift most, with standard errors"
    return Plot(title, _summary(found), "data set and network", "difference, points", series)


def _series(title: str, differences: dict[str, PairedDifference]) -> Series:
    errors = [one.standard_error for one in differences.values()]
    drawable = None if any(map(math.isnan, errors)) else errors
    return Series(title, list(differences), [one.mean for one in differences.values()], drawable, style="markers")


def _summary(found: dict[str, dict[str, PairedDifference]]) -> str:
    comparisons = sum(map(len, found.values()))
    beyond = [
        f"{ENTRIES[row].title} on {arena} ({Number(one.mean, signed=True).printed})"
        for row, differences in found.items()
        for arena, one in differences.items()
        if one.pairs > 1 and one.is_beyond_chance(comparisons)
    ]
    basis = f"95 % sure over {comparisons} comparisons"
    return f"Beyond chance ({basis}): {'; '.join(beyond)}." if beyond else f"Nothing is beyond chance ({basis})."


def _table(arena: str, part: pd.DataFrame) -> Table:
    tests = _tests(part)
    columns = [name for test in tests for name in (test, f"{test}, difference")]
    lines = []
    for row in dict.fromkeys(part["row"]):
        cells: list[tables.Cell] = []
        for test in tests:
            ours, baseline = _cells(part, row, test), BASELINES.get(row, "erm")
            cells.append(mean_cell(ours, 1) if len(ours) else Missing())
            difference = None if row == baseline else paired(ours, _cells(part, baseline, test))
            cells.append(difference_cell(difference, 1))
        lines.append(tables.Row(ENTRIES[row].title, tuple(cells)))
    return Table(f"Accuracy in percent, {arena}", "method", columns, lines)


def _tests(part: pd.DataFrame) -> list[str]:
    """The test sets in their order, the hardest first."""
    return [test for test in dict.fromkeys(part["test"]) if test not in NOT_ACCURACY]


def _cells(part: pd.DataFrame, row: str, test: str) -> pd.Series[float]:
    chosen = part[(part["row"] == row) & (part["test"] == test)]
    return chosen.set_index("seed")["value"].dropna()
