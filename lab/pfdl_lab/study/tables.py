"""The tables of the study: each method's paired differences, in overviews and data set by data set."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pandas as pd

from pfdl.objectives.examples import weighs_samples
from pfdl.report.blocks import Block
from pfdl.report.tables import Cell, Missing, Number, Row, Table
from pfdl_lab.pairing import paired
from pfdl_lab.statistics import ACTS_BELOW, by_seed, difference_cell
from pfdl_lab.study.rows import FACTORS, METHODS, ORACLE, RIVALS, find_row
from pfdl_lab.study.run import AGREEMENT, CHOSEN, DIVERGED, ESS, NOT_ACCURACY, NUMBER, VALIDATION


def rows_of(results: pd.DataFrame) -> list[str]:
    """Return the rows there are: methods first, then variants, then others."""
    present = dict.fromkeys(results["row"])
    ordered = [*METHODS, *RIVALS, *FACTORS]
    return [*(row for row in ordered if row in present), *(row for row in present if row not in ordered)]


def tests_of(part: pd.DataFrame) -> list[str]:
    """Return the test sets in their order, the hardest first."""
    return [test for test in dict.fromkeys(part["test"]) if test not in NOT_ACCURACY and VALIDATION not in test]


def overviews(results: pd.DataFrame, rows: Sequence[str], against: str | None, when: str = "") -> list[Block]:
    """Return a table for each family of data sets, such as all with PACS, at the hardest test.

    Args:
        results: See :func:`pfdl_lab.study.run.run`.
        rows: Keys of the rows.
        against: Key of what every row is compared with; each row's own plain training where this is None.
        when: What the name of a test ends in; by default the last epoch's have no ending.
    """
    tables: list[Block] = []
    for parts in _families(results):
        tests = {name: f"{tests_of(part)[0]}{when}" for name, part in parts.items()}
        lines = _lines(
            (row, [_difference_cell(part, row, against, tests[name], brief=True) for name, part in parts.items()])
            for row in rows
        )
        columns = [f"{name}: {test}" for name, test in tests.items()]
        seeds = {part["seed"].nunique() for part in parts.values()}
        caption = (
            f"Differences in points, {max(seeds)} paired seeds unless another number stands; plain training: accuracy"
        )
        tables.append(Table(caption, "method", columns, lines))
    return tables


def oracle_tables(results: pd.DataFrame) -> list[Block]:
    """Return, for each family of data sets, how far methods with inferred contexts are behind those with true ones."""
    rows = rows_of(results)
    pairs = [(row, f"{row}{ORACLE}") for row in rows if f"{row}{ORACLE}" in rows]
    tables: list[Block] = []
    for parts in _families(results):
        lines = _lines((row, [_oracle_cell(part, row, oracle) for part in parts.values()]) for row, oracle in pairs)
        if lines:
            columns = [f"{name}: {tests_of(part)[0]}" for name, part in parts.items()]
            caption = "Difference to the same method with true contexts in points, and the share of its gain"
            tables.append(Table(caption, "method", columns, lines))
    return tables


def _oracle_cell(part: pd.DataFrame, row: str, oracle: str) -> Cell:
    """Return the difference to the oracle; what share of its gain is reached, if it gains more than noise."""
    test = tests_of(part)[0]
    plain, ours, best = (by_seed(part, row=key, test=test) for key in (find_row(row).baseline, row, oracle))
    behind, gained, possible = paired(ours, best), paired(ours, plain), paired(best, plain)
    if behind is None or gained is None or possible is None or behind.pairs < 2:
        return Missing()
    if possible.mean > 0 and possible.is_beyond_chance():
        remark = f"{gained.mean / possible.mean:.0%} of {difference_cell(possible, 1)}".replace("%", " %")
    else:
        remark = "no gain to reach"
    return difference_cell(behind, 1, remark=remark)


def details(name: str, part: pd.DataFrame, against: str | None) -> list[Block]:
    """Return all tests of one data set: of the last epoch, and of the chosen one where there is one."""
    tests, tables = tests_of(part), list[Block]()
    for when in ("", CHOSEN):
        these = [test for test in tests if test.endswith(CHOSEN) == bool(when)]
        if not these:
            continue
        judged = [test for test in dict.fromkeys(part["test"]) if when and test.startswith(VALIDATION)]
        columns = ["seeds", *(column for test in these for column in (test, f"{test}, difference")), *judged]
        columns += [] if when else ["contexts found", "their agreement with the true ones", ESS]
        lines = []
        for row in rows_of(part):
            cells: list[Cell] = [Number(len(by_seed(part, row=row, test=these[0])), digits=0)]
            for test in these:
                cells += [_mean_cell(part, row, test), _difference_cell(part, row, against, test)]
            cells += [_mean_cell(part, row, test) for test in judged]
            cells += [] if when else [*_context_cells(part, row), _ess_cell(part, row)]
            lines.append(Row(title_of(row), tuple(cells)))
        tables.append(Table(f"Accuracy in percent, {name}{when}", "method", columns, lines))
    return tables


def _families(results: pd.DataFrame) -> list[dict[str, pd.DataFrame]]:
    """Return the results by data set, those together whose names begin the same."""
    families: dict[str, dict[str, pd.DataFrame]] = {}
    for name in dict.fromkeys(results["dataset"]):
        families.setdefault(re.split(r"[,-]", name)[0], {})[name] = results[results["dataset"] == name]
    return list(families.values())


def _lines(cells: Iterable[tuple[str, Sequence[Cell]]]) -> list[Row]:
    """Return a line for each row that was measured on one of the data sets."""
    return [
        Row(title_of(row), tuple(measured))
        for row, measured in cells
        if not all(isinstance(cell, Missing) for cell in measured)
    ]


def _mean_cell(part: pd.DataFrame, row: str, test: str) -> Cell:
    values = by_seed(part, row=row, test=test)
    return Number(values.mean(), digits=1) if len(values) else Missing()


def _difference_cell(part: pd.DataFrame, row: str, against: str | None, test: str, *, brief: bool = False) -> Cell:
    ours, rival = by_seed(part, row=row, test=test), against or find_row(row, measured=True).baseline
    if not len(ours):
        return Missing()
    if row == rival:
        return Number(ours.mean(), digits=1) if brief else Missing("compared with")
    difference = paired(ours, by_seed(part, row=rival, test=test))
    if difference is None or difference.pairs < 2:
        return Missing("no pairs")
    idle = _did_not_act(part, row)
    remarks = [] if brief else [f"p = {difference.p_value:.2g}"]
    if brief:
        fewer = difference.pairs < part["seed"].nunique()
        remarks += [f"{difference.pairs} seeds"] if fewer else []
        remarks += ["did not act"] if idle else []
    if diverged := len(by_seed(part, row=row, test=DIVERGED)):
        remarks.append(f"{diverged} diverged")
    return difference_cell(difference, 2, strong=difference.is_beyond_chance() and not idle, remark=", ".join(remarks))


def _context_cells(part: pd.DataFrame, row: str) -> tuple[Cell, Cell]:
    number, agreement = (by_seed(part, row=row, test=key) for key in (NUMBER, AGREEMENT))
    if not len(number):
        return Missing("not inferred"), Missing("not inferred")
    agreed = Number(agreement.mean(), digits=2) if len(agreement) else Missing("true contexts not known")
    return Number(number.mean(), digits=1), agreed


def _ess_cell(part: pd.DataFrame, row: str) -> Cell:
    if not _is_weighting(row):
        return Missing("no weighting")
    sizes = by_seed(part, row=row, test=ESS)
    if not len(sizes):
        return Missing("not recorded")
    remarks = [f"{len(sizes)} seeds"] if len(sizes) < len(by_seed(part, row=row, test=tests_of(part)[0])) else []
    remarks += ["did not act"] if _did_not_act(part, row) else []
    return Number(sizes.mean(), digits=4, remark=", ".join(remarks))


def _did_not_act(part: pd.DataFrame, row: str) -> bool:
    sizes = by_seed(part, row=row, test=ESS)
    return _is_weighting(row) and len(sizes) > 0 and float(sizes.mean()) > ACTS_BELOW


def title_of(row: str) -> str:
    """Return the name of a row in tables."""
    return find_row(row, measured=True).title


def _is_weighting(row: str) -> bool:
    return weighs_samples(find_row(row, measured=True).objective)
