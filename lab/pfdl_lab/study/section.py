"""The study in the report: each method's paired difference to plain training, in overviews and data set by data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from pfdl._internal.runs import Run
from pfdl.report.blocks import Block, Heading, Section, Text
from pfdl.report.plots import Plot, Series
from pfdl_lab.pairing import PairedDifference, paired
from pfdl_lab.report.reading import read_results as read_run_results
from pfdl_lab.statistics import by_seed, difference_cell
from pfdl_lab.study.data import SHIFTED, TESTS
from pfdl_lab.study.rows import FACTORS, find_row
from pfdl_lab.study.run import CHOSEN, COLUMNS
from pfdl_lab.study.tables import details, oracle_tables, overviews, rows_of, tests_of, title_of

KIND = "study"
TITLE = "Study of methods under context shift"
INTRODUCTION = (
    "Many small trainings that differ in the objective alone: the same first weights, the same splits. The last epoch "
    "counts, and nothing is selected, except where a test names a chosen epoch: held-out training samples chose that. "
    "Oracles know the true contexts of training samples. Differences are paired, ± is "
    "their standard error, and p is of a paired t-test, uncorrected for the number of rows; below 0.05 differences are "
    "bold. A training that diverged counts with what was left of it. Effective sample size is a "
    "share of the batch; a weighting that changes it by less than 0.1 % did not act: it is plain training under "
    "another name."
)


def build(run: Run, problems: list[str]) -> Section:
    """Build the section of one run."""
    results = read_run_results(
        run,
        names=["dataset", "row", "test"],
        numbers=["seed", "value"],
        keys=["dataset", "row", "seed", "test"],
        problems=problems,
    )
    known = {row for row in results["row"].unique() if _is_known(row)}
    return describe(results[results["row"].isin(known)])


def read_results(paths: Sequence[Path]) -> pd.DataFrame:
    """Read the results of one or more runs as one; what several have is taken from the first.

    Args:
        paths: Files ``results.csv``.

    Raises:
        ValueError: If a file is not of a study.
    """
    parts = []
    for path in paths:
        try:
            parts.append(pd.read_csv(path, usecols=list(COLUMNS), dtype={"seed": int, "value": float}))
        except ValueError as error:  # pandas' own errors are ValueErrors
            raise ValueError(f"{path} does not hold the results of a study: {error}") from error
    results = pd.concat(parts, ignore_index=True).drop_duplicates(list(COLUMNS[:-1]))
    if unknown := sorted({str(row) for row in results["row"]} - {row for row in results["row"] if _is_known(row)}):
        raise ValueError(f"results.csv has rows that this version does not know: {', '.join(unknown)}.")
    return results


def describe(results: pd.DataFrame, *, against: str | None = None, plots: bool = True) -> Section:
    """Build the section of some results.

    Args:
        results: See :func:`pfdl_lab.study.run.run`.
        against: Key of what every row is compared with; each row's own plain training where this is None.
        plots: Whether each data set has a plot.

    Returns:
        Overviews where contexts shift most, one for each family of data sets, then all tests of each data set.
    """
    rival = "plain training" if against is None else find_row(against, measured=True).title
    blocks: list[Block] = [Text(f"{INTRODUCTION} Compared with {rival}.")]
    if not len(results):
        return Section(TITLE, [*blocks, Text("No finished results yet.", "warning")])
    results = results.astype({"row": "category", "test": "category"})  # thousands of cells are looked up by them
    findings = []
    factors = [row for row in rows_of(results) if row in FACTORS]
    if not any(FACTORS[row].objective == "pfdl" for row in factors):
        factors = []  # only plain training in other batches, which other rows are compared with
    shift = any(_shifts(tests_of(part)[0]) for _, part in results.groupby("dataset"))
    where = "Where contexts shift most" if shift else "On the test images"
    groups = {where: [row for row in rows_of(results) if row not in factors]}
    if factors:
        groups[f"Variants of PFDL, {where[0].lower()}{where[1:]}"] = [
            "erm",
            *(["pfdl"] if against is None else []),
            *factors,
        ]
    is_chosen = results["test"].astype(str).str.endswith(CHOSEN).any()
    for title, rows in groups.items():
        compared = {find_row(row, measured=True).baseline for row in rows} if against is None else {against}
        part = results[results["row"].isin([*rows, *compared])]
        blocks += [Heading(title), *overviews(part, rows, against)]
        if is_chosen:
            blocks += [Heading(f"{title}{CHOSEN}"), *overviews(part, rows, against, when=CHOSEN)]
    if against is None and (tables := oracle_tables(results)):
        blocks += [Heading("What inferred contexts reach of the oracle's gain"), *tables]
    for name, part in results.groupby("dataset", sort=False):
        blocks.append(Heading(str(name)))
        if differences := _differences(part, against):
            plot = _plot(tests_of(part)[0], rival, differences)
            findings.append(f"{name}: {plot.summary}")
            blocks += [plot] if plots else []
        blocks += details(str(name), part, against)
    return Section(TITLE, blocks, " ".join(findings))


def _shifts(test: str) -> bool:
    """Return whether a test has contexts in other proportions than training."""
    return test in (*TESTS, SHIFTED)


def _is_known(row: object) -> bool:
    try:
        find_row(str(row), measured=True)
    except ValueError:
        return False
    return True


def _differences(part: pd.DataFrame, against: str | None) -> dict[str, PairedDifference]:
    """Return, by the title of the method, points gained on plain training where the contexts shift most."""
    hardest = tests_of(part)[0]
    found = {}
    for row in rows_of(part):
        rival = against or find_row(row, measured=True).baseline
        is_baseline = any(find_row(other, measured=True).baseline == row for other in rows_of(part))
        difference = paired(by_seed(part, row=row, test=hardest), by_seed(part, row=rival, test=hardest))
        if difference is not None and row != rival and not is_baseline:
            found[title_of(row)] = difference
    return found


def _plot(test: str, rival: str, differences: dict[str, PairedDifference]) -> Plot:
    beyond = [
        f"{title} ({difference_cell(one, 1)})"
        for title, one in differences.items()
        if one.pairs > 1 and one.is_beyond_chance(len(differences))
    ]
    basis = f"95 % confidence over {len(differences)} comparison{'s' * (len(differences) > 1)}"
    same = f"All methods equal {rival} within noise ({basis})."
    summary = f"Different from {rival} beyond chance ({basis}): {'; '.join(beyond)}." if beyond else same
    errors = [one.standard_error for one in differences.values()]
    means = [one.mean for one in differences.values()]
    line = Series(f"difference to {rival}", list(differences), means, errors, style="markers")
    where = f"at {test}, where contexts shift most" if _shifts(test) else "on the test images"
    title = f"Difference to {rival} {where}, with standard errors"
    return Plot(title, summary, "", "difference, points", [line], with_table=False)
