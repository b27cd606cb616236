"""Table II on the paper's backbone in the report: accuracies, paired differences, and what the penalty does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pfdl._internal.runs import Run
from pfdl.objectives.examples import weighs_samples
from pfdl.report.blocks import Block, Heading, Section, Text
from pfdl.report.plots import Plot, Series
from pfdl.report.tables import Cell, Missing, Number, Row, Table
from pfdl_lab.contexts.rows import RATIOS
from pfdl_lab.pairing import paired
from pfdl_lab.report.reading import read_results
from pfdl_lab.statistics import (
    ACTS_BELOW,
    by_seed,
    difference_cell,
    difference_with_count,
    mean_cell,
    mean_series,
)
from pfdl_lab.table_ii.rows import PAPER, PAPER_BACKBONE, ROWS
from pfdl_lab.table_ii.run import CHOSEN, LAST, WHOLE, WORST

KIND = "table-ii"
TITLE = "Table II on the paper's backbone"
TESTS = (*RATIOS, WHOLE, WORST)
PROBES = {
    "L_decorr": "L_decorr",
    "level_part": "level part",
    "covariance_part": "covariance part",
    "cosine_level_penalty": "cosine with the level penalty's gradient",
    "covariance_gradient": "covariance part's gradient, share",
    "R2": "R² of g",
}
SHOWN = (1, 2, 5, 10, 20, 40, 60, 80, 90, 120, 140, 160)
"""A dozen epochs of the tables along the training; the plots have all."""
HEADLINES = ("pfdl", "level")
"""The rows that the finding speaks of, where they are there; the tables have all."""
DRAWN = (*HEADLINES, "weight-decay", "covariance", "standardised")
"""The rows whose curves are drawn: more than five cannot be told apart."""
EPOCHS = {LAST: "at the last epoch", CHOSEN: "at the epoch that validation images choose"}


def build(run: Run, problems: list[str]) -> Section:
    """Build the section of one run."""
    keys = ["data", "backbone", "row", "seed", "epoch", "test"]
    results = read_results(run, ["data", "backbone", "row", "epoch", "test"], ["seed", "value"], keys, problems)
    results = results[results["row"].isin(ROWS)]
    results = results.astype(dict.fromkeys(("row", "epoch", "test"), "category"))  # values are looked up by them
    blocks: list[Block] = [Text(_introduction(run))]
    findings = []
    for (data, backbone), part in results.groupby(["data", "backbone"], sort=False):
        blocks.append(Heading(f"{data}, {backbone}"))
        for epoch, when in EPOCHS.items():
            paper = PAPER if backbone == PAPER_BACKBONE else {}
            blocks += [_accuracies(part, epoch, when, paper), _differences(part, epoch, when)]
        findings.append(f"{data}, {backbone}: {_finding(part)}")
        blocks += [_curves(part, test) for test in ("1:5", "5:1")]
        blocks += _probes(part)
    backbones = set(results["backbone"])
    title = TITLE if backbones <= {PAPER_BACKBONE} else f"Table II with {' and '.join(sorted(backbones))}"
    return Section(title, blocks, " ".join(findings))


def _introduction(run: Run) -> str:
    settings = run.settings
    return (
        f"Trained from scratch at a dominant ratio of 5:1, {settings.get('image_size')} pixels, the network's own "
        f"stem, {settings.get('epochs')} epochs of SGD with momentum 0.9, learning rate 0.01 and a tenth of it after "
        f"every {settings.get('decay_every')}, batches of {settings.get('batch_size')}, weight decay 1e-4 unless the "
        "row says otherwise. All rows of a seed share the split and the first weights. A tenth of the training set is "
        "held out to choose an epoch; test images choose nothing. Differences are paired; ± is a standard error, and "
        "how many of the seeds are positive follows; they are bold where the 95 % interval of Student's t leaves out "
        "zero. Figures of the paper, where they stand beside ours, are on NICO, which is another data set."
    )


def _values(part: pd.DataFrame, row: str, epoch: str, test: str) -> pd.Series[float]:
    return by_seed(part, row=row, epoch=epoch, test=test)


def _rows(part: pd.DataFrame) -> list[str]:
    present = set(part["row"])
    return [row for row in ROWS if row in present]


def _accuracies(part: pd.DataFrame, epoch: str, when: str, published: Mapping[str, Sequence[float | None]]) -> Table:
    lines = []
    shares = {row: _last_share(part, row) for row in _rows(part)}
    weighted = any(share is not None for share in shares.values())
    for row, share in shares.items():
        cells: list[Cell] = [Number(len(_values(part, row, epoch, WHOLE)), digits=0)]
        if weighted:
            cells.append(Missing("no weights") if share is None else _acted(share))
        cells += [mean_cell(_values(part, row, epoch, test), 1) for test in TESTS]
        lines.append(Row(ROWS[row].title, tuple(cells)))
        if row in published:
            absent = Missing("not in the paper")
            paper = [absent if value is None else Number(value, digits=2) for value in published[row]]
            rest = [absent] * (len(TESTS) - len(RATIOS))
            lines.append(Row("in the paper, on NICO", (*[absent] * (1 + weighted), *paper, *rest), quiet=True))
    columns = ["seeds", *(["n_eff / n"] if weighted else []), *TESTS]
    return Table(f"Accuracy in percent {when}", "row", columns, lines)


def _last_share(part: pd.DataFrame, row: str) -> float | None:
    """Return the effective sample size over the batch size in the last epoch, for rows that weight samples."""
    if not weighs_samples(ROWS[row].objective):
        return None
    measured = _along(part, row, "effective_share")
    return float(np.mean(measured[max(measured)])) if measured else None


def _acted(share: float) -> Cell:
    return Number(share, digits=4, remark="did not act" if share > ACTS_BELOW else "")


def _differences(part: pd.DataFrame, epoch: str, when: str) -> Table:
    pairs = [(row, "erm") for row in _rows(part) if row != "erm" and len(_values(part, row, epoch, WHOLE)) > 1]
    if {"level", "pfdl"} <= set(_rows(part)):
        pairs.append(("level", "pfdl"))
    lines = []
    for row, rival in pairs:
        cells = [
            difference_with_count(_values(part, row, epoch, test), _values(part, rival, epoch, test)) for test in TESTS
        ]
        lines.append(Row(f"{ROWS[row].title} − {ROWS[rival].title}", tuple(cells)))
    return Table(f"Paired differences in points {when}", "difference", TESTS, lines)


def _finding(part: pd.DataFrame) -> str:
    sentences = []
    rows = _rows(part)
    for row in [row for row in HEADLINES if row in rows] or rows:
        difference = paired(_values(part, row, LAST, "1:5"), _values(part, "erm", LAST, "1:5"))
        home = paired(_values(part, row, LAST, "5:1"), _values(part, "erm", LAST, "5:1"))
        if row == "erm" or difference is None or home is None or difference.pairs < 2:
            continue
        sentences.append(
            f"{ROWS[row].title} differs from ERM by {difference_cell(difference, 1)} points at 1:5 and by "
            f"{difference_cell(home, 1)} at 5:1 ({difference.pairs} seeds)."
        )
    return " ".join(sentences) or "no two rows have a seed in common yet."


def _epochs(part: pd.DataFrame) -> list[int]:
    return sorted({int(epoch) for epoch in part["epoch"].unique() if epoch not in EPOCHS})


def _curves(part: pd.DataFrame, test: str) -> Plot:
    """Draw the paired differences to ERM along the training."""
    epochs, present = _epochs(part), _rows(part)
    series = []
    for row in (row for row in DRAWN if row in present):
        found = [_gain(part, row, str(epoch), test) for epoch in epochs]
        series.append(Series(ROWS[row].title, epochs, [mean for mean, _ in found], [error for _, error in found]))
    summary = "Paired over the seeds, at epochs of the training; above 0: more often right than ERM."
    title = f"Difference to ERM along the training, tested at {test}"
    return Plot(title, summary, "epoch", "points ± standard error", series)


def _gain(part: pd.DataFrame, row: str, epoch: str, test: str) -> tuple[float, float]:
    difference = paired(_values(part, row, epoch, test), _values(part, "erm", epoch, test))
    return (np.nan, np.nan) if difference is None else (difference.mean, difference.standard_error)


def _probes(part: pd.DataFrame) -> list[Block]:
    """Show what the penalty is made of, and how its gradient points, along the training."""
    blocks: list[Block] = []
    lines, series = [], []
    for number, row in enumerate(_rows(part)):
        measured = {name: _along(part, row, name) for name in PROBES}
        if not measured["L_decorr"]:
            continue
        for epoch in (epoch for epoch in measured["L_decorr"] if epoch in SHOWN):
            cells = [
                Number(float(np.mean(values[epoch])), digits=_digits(name)) if epoch in values else Missing()
                for name, values in measured.items()
            ]
            lines.append(Row(f"{ROWS[row].title}, epoch {epoch}", tuple(cells)))
        series.append(mean_series(ROWS[row].title, measured["cosine_level_penalty"], number))
    if lines:
        summary = (
            "The cosine between the gradients of L_decorr and of the level penalty with respect to the features. 1: "
            "both ask the same of the features; 0: what one asks has nothing to do with the other."
        )
        drawn = [line for line in series if line is not None]
        blocks.append(Plot("Direction of the penalty's gradient", summary, "epoch", "cosine", drawn, digits=2))
        caption = "What the penalty is made of along the training; mean over the seeds"
        blocks.append(Table(caption, "row, epoch", list(PROBES.values()), lines))
    return [*blocks, *_matching_weights(part)]


def _matching_weights(part: pd.DataFrame) -> list[Block]:
    """Show the λ at which the covariance part's gradient would be as long as that of L_decorr."""
    found = {row: _along(part, row, "matched_weight") for row in _rows(part)}
    lines = [
        Row(ROWS[row].title, tuple(mean_cell(pd.Series(values[epoch]), 0) for epoch in values if epoch in SHOWN))
        for row, values in found.items()
        if values
    ]
    if not lines:
        return []
    epochs = [f"epoch {epoch}" for epoch in _epochs(part) if epoch in SHOWN]
    caption = "λ at which the covariance part alone is as strong as PFDL; mean over the epoch and the seeds"
    return [Table(caption, "row", epochs, lines)]


def _along(part: pd.DataFrame, row: str, name: str) -> dict[int, list[float]]:
    found = {epoch: _values(part, row, str(epoch), name).tolist() for epoch in _epochs(part)}
    return {epoch: values for epoch, values in found.items() if values}


def _digits(name: str) -> int:
    return 2 if name in ("cosine_level_penalty", "R2") else 5
