"""Colored-MNIST in the report: our figures beside the published ones, and what PFDL's weight
does.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from pfdl.runs import Run
from pfdl_lab.colored_mnist.environments import TRAIN_COLOR_FLIPS
from pfdl_lab.colored_mnist.rows import (
    CHOOSING,
    IRM_PFDL,
    MAIN_ROWS,
    PAIRS,
    PAPER,
    PUBLISHED,
    ROWS,
    candidates,
)
from pfdl_lab.colored_mnist.run import FULL, WORST_GROUP
from pfdl_lab.pairing import holm, paired
from pfdl_lab.report.blocks import (
    Block,
    Cell,
    Missing,
    Number,
    Section,
    Table,
    TableLine,
    Text,
)
from pfdl_lab.report.reading import Columns
from pfdl_lab.statistics import difference_cell, mean_cell

KIND = "colored-mnist"
TITLE = "Colored digits (Colored-MNIST)"
SPLITS = ("train", "test")
MARGIN = 1.0
"""Points within which two rows are called equal."""

LEVEL = 0.05
RISKS = tuple(f"held_out_risk_{flip}" for flip in TRAIN_COLOR_FLIPS)
COLUMNS = Columns(("row",), ("restart", *(f"{split}_accuracy" for split in SPLITS), *RISKS))


def build(run: Run, results: pd.DataFrame) -> Section:
    """Build the section of one run."""
    results = results.assign(
        **{name: results.get(name, float("nan")) for name in ("step", WORST_GROUP)}
    )
    results = results.drop_duplicates(["row", "restart", "step"], ignore_index=True)
    last = results.groupby(["row", "restart"])["step"].transform("max")
    ends = results.loc[last.eq(results["step"]) | results["step"].isna()]
    blocks: list[Block] = [Text(words, "warning") for words in _cautions(run)]
    tables = (
        _main_table(ends),
        _differences(ends),
        _chosen(results, ends),
        _risks(ends),
        _extras(ends),
    )
    return Section(TITLE, [*blocks, *(table for table in tables if table.rows)])


def choose_by_worst_group(results: pd.DataFrame, keys: Iterable[str]) -> pd.DataFrame:
    """Return for each restart the line, of all candidates and steps, with the best worst inferred
    group held out.

    Args:
        results: Lines with ``row``, ``restart``, ``step`` and the accuracy of the worst group on
            held-out images of the training environments; a group is one class in one inferred
            context.
        keys: Rows to choose from.

    Returns:
        One line per restart; in a tie, the candidate that comes first, at its earliest step.
    """
    by_row = dict(iter(results.dropna(subset=WORST_GROUP).sort_values("step").groupby("row")))
    lines = pd.concat([by_row.get(key, results.iloc[:0]) for key in keys], ignore_index=True)
    return lines.loc[lines.groupby("restart")[WORST_GROUP].idxmax()]


def _cautions(run: Run) -> list[str]:
    """Say what about a run is not the published protocol."""
    settings = run.settings
    found = []
    if "not MNIST" in str(settings.get("digits")):
        found.append(
            "These digits are not MNIST: published figures stand beside them for orientation only."
        )
    if settings.get("max_train") is not None or settings.get("max_hidden") is not None:
        found.append(
            f"A quick run, not the published protocol: at most {settings.get('max_train')} training"
            f" rows and hidden layers of at most {settings.get('max_hidden')} units (published:"
            f" {FULL.restarts} restarts, all rows, up to 390 units)."
        )
    return found


def _main_table(ends: pd.DataFrame) -> Table:
    absent = (Missing("not published"),) * 2
    lines = []
    for key, row in MAIN_ROWS.items():
        if key in set(ends["row"]):
            ours = [mean_cell(_accuracies(ends, key, split), 2) for split in SPLITS]
            others = (*PUBLISHED.get(key, absent), *PAPER.get(key, absent))
            lines.append(TableLine(row.title, (*ours, *others)))
    columns = [
        *SPLITS,
        "published train",
        "published test",
        "PFDL paper's train",
        "PFDL paper's test",
    ]
    return Table("Accuracy in percent at the last step", "method", columns, lines)


def _differences(ends: pd.DataFrame) -> Table:
    """Show each row with PFDL beside the same without, and test what it does in the test
    environment.
    """
    found = {}
    for key, base in PAIRS:
        train, test = (
            paired(_accuracies(ends, key, split), _accuracies(ends, base, split))
            for split in SPLITS
        )
        if test is not None:
            found[f"{ROWS[key].title} − {ROWS[base].title}"] = (train, test)
    adjusted = holm([test.p_value for _, test in found.values()])
    lines = []
    for (name, (train, test)), p in zip(found.items(), adjusted, strict=True):
        words = f"{test.positive} of {test.pairs}, p = {test.p_value:.2g}, Holm {p:.2g}"
        is_equal = test.equivalence_p_value(MARGIN) <= LEVEL
        remark = f"{words}, equal" if is_equal else words
        judged = difference_cell(test, 2, strong=p <= LEVEL, remark=remark)
        lines.append(TableLine(name, (difference_cell(train, 2), judged)))
    caption = "Differences over paired restarts, in points of accuracy"
    note = (
        "In the test: the number of restarts with a positive difference, p of the paired t-test"
        " and, by Holm's method, over all of this table; bold: significant at 5 % by the latter."
        f" Equal: two one-sided t-tests place the difference within ± {MARGIN:g} point at 5 %."
    )
    return Table(caption, "difference", SPLITS, lines, note=note)


def _chosen(results: pd.DataFrame, ends: pd.DataFrame) -> Table:
    """Show the rows whose l2 weight and step to stop at are chosen by the worst group held out."""
    lines = []
    for method, title in CHOOSING.items():
        rows = candidates(method)
        chosen = choose_by_worst_group(results, rows)
        if not set(rows) <= set(results["row"]) or not len(chosen):
            continue
        l2 = chosen["row"].map(lambda key: f"{ROWS[key].config.l2:.2g}").value_counts()
        columns = ("train_accuracy", "test_accuracy", WORST_GROUP)
        cells: list[Cell] = [mean_cell(chosen[column], 2) for column in columns]
        cells.append(Number(chosen["step"].median(), digits=0))
        cells.append(
            ", ".join(f"{value} ({times} of {len(chosen)})" for value, times in l2.items())
        )
        cells.append(mean_cell(_accuracies(ends, next(iter(rows)), "test"), 2))
        lines.append(TableLine(title, tuple(cells)))
    headers = [
        *SPLITS,
        "held-out worst inferred group",
        "step (median)",
        "l2",
        "test at the last step, first l2",
    ]
    caption = (
        "Accuracy in percent where held-out images of the training environments choose l2 and the"
        " step to stop at"
    )
    return Table(caption, "method", headers, lines)


def _risks(ends: pd.DataFrame) -> Table:
    """Show the risk on held-out rows, by which PFDL's weight can be chosen without a look at the
    test.
    """
    lines = []
    for key in ("irm", *IRM_PFDL):
        own = ends[ends["row"] == key]
        if len(own):
            cells = tuple(Number(own[risk].mean(), digits=4) for risk in RISKS)
            lines.append(TableLine(ROWS[key].title, cells))
    columns = [f"flips {flip:g}" for flip in TRAIN_COLOR_FLIPS]
    return Table("Risk on held-out rows, by PFDL's weight", "method", columns, lines)


def _extras(ends: pd.DataFrame) -> Table:
    """Show rows that were measured once and that the command no longer trains, by their keys."""
    lines = []
    for key, own in ends.groupby("row", sort=False):
        if key not in ROWS:
            cells = tuple(mean_cell(own[f"{split}_accuracy"], 2) for split in SPLITS)
            lines.append(TableLine(str(key), cells))
    caption = "Also measured: rows of results.csv that the command no longer trains"
    return Table(caption, "row", SPLITS, lines)


def _accuracies(ends: pd.DataFrame, key: str, split: str) -> pd.Series[float]:
    chosen = ends[ends["row"] == key].set_index("restart")
    return chosen[f"{split}_accuracy"].sort_index()
