"""Colored-MNIST in the report: our figures beside the published ones, and what PFDL's weight does."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from pfdl._internal.runs import Run
from pfdl.data.colored_mnist import TRAIN_COLOR_FLIPS
from pfdl.experiments.colored_mnist.report import (
    CRITERION,
    TUNED_ON_TEST,
    choose_by_test_environment,
    choose_on_training_environments,
)
from pfdl.experiments.colored_mnist.rows import (
    CANDIDATES,
    CONTEXT_ROWS,
    ERM,
    IRM,
    LITERAL_ROW,
    PAPER_IRM_PFDL,
    VREX,
    Figures,
    Row,
)
from pfdl.experiments.colored_mnist.run import FULL, ROWS
from pfdl.experiments.pairing import paired
from pfdl.report import tables
from pfdl.report.page import Block, Section, Text
from pfdl.report.plots import Plot, Series
from pfdl.report.reading import read_results
from pfdl.report.sections.statistics import difference_cell, mean_cell, standard_error, verdict
from pfdl.report.tables import Cell, Missing, Table

KIND = "colored-mnist"
TITLE = "Colored digits (Colored-MNIST)"
SPLITS = ("train", "test")
_RISKS = [f"held_out_risk_{flip}" for flip in TRAIN_COLOR_FLIPS]


def build(run: Run, problems: list[str]) -> Section:
    """The section of one run."""
    numbers = ["restart", *(f"{split}_accuracy" for split in SPLITS), *_RISKS]
    results = read_results(run, names=["row"], numbers=numbers, keys=["row", "restart"], problems=problems)
    present = set(results["row"])
    planned = [key for key in run.settings.get("rows") or ROWS if key in ROWS]
    blocks: list[Block] = [Text(_introduction(run))]
    if undone := [key for key in planned if key not in present]:
        done = len(planned) - len(undone)
        blocks.append(Text(f"Unfinished: {done} of {len(planned)} rows of the table are done.", "warning"))
    chosen = _chosen(results)
    blocks += [_main_table(results, chosen), Text(TUNED_ON_TEST)]
    if chosen:
        blocks.append(Text(CRITERION.replace("*", "")))
    pairs = _pairs(present, chosen)
    if pairs:
        blocks.append(_difference_table(results, pairs))
    if present:
        blocks.append(_plane(results))
    if (weights := _weight_plot(results)) is not None:
        blocks.append(weights)
    return Section(TITLE, blocks, _finding(results))


def _introduction(run: Run) -> str:
    settings = run.settings
    text = (
        f"Digits: {settings.get('digits')}. Colour follows the label in the two training environments and opposes it "
        f"in the test environment; {settings.get('restarts')} restarts, paired over methods."
    )
    if "not MNIST" in str(settings.get("digits")):
        text += " These digits are not MNIST: published figures stand beside them for orientation only."
    if settings.get("max_train") is not None or settings.get("max_hidden") is not None:
        text += (
            f" A quick run, not the published protocol: at most {settings.get('max_train')} training rows and hidden "
            f"layers of at most {settings.get('max_hidden')} units (published: {FULL.restarts} restarts, all rows, up "
            "to 390 units)."
        )
    return text


def _finding(results: pd.DataFrame) -> str:
    sentences = []
    erm = _accuracies(results, ERM, "test")
    if len(erm):
        train = _accuracies(results, ERM, "train").mean()
        sentences.append(
            f"ERM falls from {train:.1f} % in training to {erm.mean():.1f} % where the colours turn round."
        )
    for base, row in ((IRM, LITERAL_ROW), (ERM, ROWS["erm-pfdl"])):
        difference = paired(_accuracies(results, row, "test"), _accuracies(results, base, "test"))
        if difference is not None:
            name = f"PFDL on top of {base.title}"
            sentences.append(verdict(name, f"{base.title} alone", {"the test environment": difference}))
    return " ".join(sentences)


def _chosen(results: pd.DataFrame) -> dict[str, tuple[Row, Row]]:
    """For each base whose candidates have all run: the chosen one, by its title, and the base."""
    chosen = {}
    for base, candidates in CANDIDATES.items():
        if {row.key for row in candidates} <= set(results["row"]):
            title = f"{ROWS[base].title}+PFDL, chosen"
            chosen[f"{title} on training environments"] = (choose_on_training_environments(results, base), ROWS[base])
            chosen[f"{title} by the test (oracle)"] = (choose_by_test_environment(results, base), ROWS[base])
    return chosen


def _main_table(results: pd.DataFrame, chosen: dict[str, tuple[Row, Row]]) -> Table:
    entries: list[tuple[str, Row, Figures | None]] = [
        (row.title, row, row.paper) for row in (*CONTEXT_ROWS, IRM, LITERAL_ROW)
    ]
    single = [] if chosen else [row for rows in CANDIDATES.values() for row in rows if row.key in set(results["row"])]
    entries += [(row.title, row, None) for row in single]
    entries += [(title, row, PAPER_IRM_PFDL if base is IRM else None) for title, (row, base) in chosen.items()]
    lines = []
    for title, row, paper in entries:
        ours: list[Cell] = [mean_cell(_accuracies(results, row, split), 1, deviation=True) for split in SPLITS]
        lines.append(tables.Row(title, (_weight(row), *ours, *_printed(row.published), *_printed(paper))))
    return Table(
        "Accuracy in percent, mean ± standard deviation over restarts",
        "method",
        ["λ", "train", "test", "published train", "published test", "PFDL paper's train", "PFDL paper's test"],
        lines,
        error_name="standard deviation",
    )


def _weight(row: Row) -> Cell:
    if not row.pfdl_weight:
        return Missing("without PFDL")
    return f"{row.pfdl_weight:g}" + (", pairwise" if row.is_pairwise else "")


def _printed(figures: Figures | None) -> tuple[Cell, Cell]:
    absent = Missing("no figure published")
    return (figures.train, figures.test) if figures else (absent, absent)


def _pairs(present: set[str], chosen: dict[str, tuple[Row, Row]]) -> list[tuple[str, Row, Row]]:
    pairs = [(LITERAL_ROW.title, LITERAL_ROW, IRM), (ROWS["erm-pfdl"].title, ROWS["erm-pfdl"], ERM)]
    pairs += [(title, row, base) for title, (row, base) in chosen.items()]
    return [pair for pair in pairs if {pair[1].key, pair[2].key} <= present]


def _difference_table(results: pd.DataFrame, pairs: Sequence[tuple[str, Row, Row]]) -> Table:
    lines = []
    for title, row, base in pairs:
        found = [paired(_accuracies(results, row, split), _accuracies(results, base, split)) for split in SPLITS]
        lines.append(tables.Row(f"{title} − {base.title}", tuple(difference_cell(one, 2) for one in found)))
    return Table("Differences over paired restarts, in points of accuracy", "difference", SPLITS, lines)


def _plane(results: pd.DataFrame) -> Plot:
    points = []
    for number, row in enumerate((*CONTEXT_ROWS, IRM, LITERAL_ROW)):
        train, test = (_accuracies(results, row, split) for split in SPLITS)
        if len(train):
            points.append(Series(row.title, train.tolist(), test.tolist(), style="markers", colour=number))
    means = {point.name: sum(point.y) / len(point.y) for point in points}
    best = max(means, key=means.__getitem__) if means else ""
    summary = f"A point is a restart. The highest mean in the test has {best}, {means[best]:.1f} %." if means else ""
    title = "Training against test accuracy"
    return Plot(title, summary, "training accuracy, %", "test accuracy, %", points, with_table=False)


def _weight_plot(results: pd.DataFrame) -> Plot | None:
    lines = []
    for number, base in enumerate((IRM, VREX)):
        rows = [row for row in CANDIDATES[base.key] if not row.is_pairwise]
        rows = [row for row in rows if row.key in set(results["row"])]
        for split in SPLITS if len(rows) > 1 else ():
            cells = [_accuracies(results, row, split) for row in rows]
            errors = [standard_error(cell) for cell in cells]
            means, weights = [float(cell.mean()) for cell in cells], [row.pfdl_weight for row in rows]
            drawable = None if any(error != error for error in errors) else errors
            colour = 2 * number + SPLITS.index(split) + 1
            lines.append(Series(f"{base.title}+PFDL, {split}", weights, means, drawable, colour=colour))
    if not lines:
        return None
    summary = "A stronger penalty moves accuracy from training to test where the two lines of a method draw together."
    return Plot("Accuracy against PFDL's weight", summary, "λ", "accuracy, %", lines, log_x=True)


def _accuracies(results: pd.DataFrame, row: Row, split: str) -> pd.Series[float]:
    chosen = results[results["row"] == row.key].set_index("restart")
    return chosen[f"{split}_accuracy"].sort_index()
