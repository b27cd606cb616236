"""Images under context shift in the report: the paper's Table II beside ours, by dominant ratio, and how it trained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from pfdl._internal.runs import Run
from pfdl.objectives.examples import weighs_samples
from pfdl.report.blocks import Block, Heading, Section, Text
from pfdl.report.plots import Plot, Series
from pfdl.report.tables import Cell, Missing, Number, Row, Table
from pfdl_lab.contexts.rows import RATIOS, RESNET, ROWS, ContextsRow
from pfdl_lab.pairing import PairedDifference, paired
from pfdl_lab.report.reading import read_metrics, read_results, runs_within
from pfdl_lab.report.sections.curves import curve_plots
from pfdl_lab.statistics import ACTS_BELOW, difference_cell, standard_error

KIND = "contexts"
TITLE = "Images under context shift"
COLUMNS = (*RATIOS, "all", "worst group")
SUMMARY = "summary.csv"
"""Means and standard errors, for published runs whose single seeds are not kept; it stands in for ``results.csv``."""


class Line(NamedTuple):
    """What was measured of one row in one test: means in percent and points, and their standard errors.

    Attributes:
        accuracy: Mean over the seeds.
        error: Its standard error.
        seeds: How many there are.
        difference: Mean paired difference to plain training; NaN without any.
        difference_error: Its standard error.
    """

    accuracy: float
    error: float
    seeds: float
    difference: float = math.nan
    difference_error: float = math.nan


Summary = dict[tuple[str, str], Line]
"""By the key of the row and the name of the test."""

Rows = Mapping[str, ContextsRow]
"""The rows by their keys, titled after the network of the run."""

PAPER_SCHEDULE = (160, "resnet50")
PAPER_NOTE = (
    "Rows in the paper are the paper's figures on NICO, for orientation where the images are others. The paper's "
    "ResNet-50 row is commented out in its source, and it does not say on which network it ran DWR."
)
ESS_NOTE = (
    " Effective sample size: mean over the last epoch as a share of the batch; where the weights moved it by less than "
    "0.1 %, the weighting did not act and the row is plain training under another name."
)
ESS = "effective sample size"


def build(run: Run, problems: list[str]) -> Section:
    """Build the section of one run."""
    if (run.folder / SUMMARY).is_file():
        table = read_results(run, ["row", "test"], Line._fields, ["row", "test"], problems, file=SUMMARY)
        lines = [Line(*line) for line in table[list(Line._fields)].to_numpy(dtype=float).tolist()]
        summary = dict(zip(zip(table["row"], table["test"], strict=True), lines, strict=True))
        done = int(sum(line.seeds for (_, test), line in summary.items() if test == RATIOS[0]))
    else:
        keys = ["row", "seed", "test"]
        results = read_results(run, ["row", "test"], ["seed", "accuracy"], keys, problems)
        summary, done = summarise(results), len(results[["row", "seed"]].drop_duplicates())
    titled = {key: row.for_network(str(run.settings.get("resnet", RESNET))) for key, row in ROWS.items()}
    rows = [row for key, row in titled.items() if key in (run.settings.get("rows") or ROWS)]
    planned = len(rows) * run.settings.get("seeds", 0)
    trainings = _trainings(run, problems)
    blocks: list[Block] = [Text(_introduction(run))]
    if done < planned:
        begun = sum(map(len, trainings.values())) - done
        more = f"; {begun} more {'has' if begun == 1 else 'have'} begun" if begun > 0 else ""
        blocks.append(Text(f"Unfinished: {done} of {planned} trainings are done{more}.", "warning"))
    if summary:
        blocks += [
            _accuracy_plot(summary, titled),
            _accuracy_table(rows, summary, trainings),
            *_differences(summary, titled),
        ]
    if trainings:
        blocks.append(Heading("Training curves"))
        blocks.append(Text("Mean over the seeds of a method; an epoch that only some reached is the mean of those."))
        titles = {titled[key].title: curves for key, curves in trainings.items()}
        blocks.append(curve_plots(titles, {row.title: number for number, row in enumerate(titled.values())}))
    return Section(TITLE, blocks, _finding(summary, titled))


def summarise(results: pd.DataFrame) -> Summary:
    """Return the mean of each row in each test, and its paired difference to plain training."""
    measured = {
        (str(row), str(test)): part.set_index("seed")["accuracy"].dropna()
        for (row, test), part in results.groupby(["row", "test"], sort=False)
    }
    summary = {}
    for (row, test), ours in measured.items():
        if row in ROWS:
            plain = measured.get((str(ROWS[row].baseline), test))
            difference = None if plain is None else paired(ours, plain)
            gained = (difference.mean, difference.standard_error) if difference else ()
            summary[row, test] = Line(float(ours.mean()), standard_error(ours), len(ours), *gained)
    return summary


def _introduction(run: Run) -> str:
    settings = run.settings
    if settings.get("folder") is None:
        source = f"Images: the generated shapes (not NICO), {settings.get('per_cell')} of each class in each context."
    else:
        names = [Path(settings["folder"]).name, settings.get("superclass")]
        source = f"Images: the folder {', '.join(name for name in names if name)}."
    stem = "its stock stem" if settings.get("small_stem") is False else "a 3×3 stem"
    rows = [ROWS[key] for key in settings.get("rows") or ROWS if key in ROWS]
    name = str(settings.get("resnet"))
    network = f"{name} with {stem}" if name.startswith(RESNET) else f"the network {name!r} in place of a ResNet"
    network = f" {network}," if any(row.backbone == RESNET for row in rows) else ""
    how = (
        f" Trained from scratch with the dominant context at 5:1, tested at seven ratios: {settings.get('image_size')} "
        f"pixels, {settings.get('epochs')} epochs, learning rate 0.01 and a tenth of it after every "
        f"{settings.get('decay_every')}, batches of {settings.get('batch_size')},{network} "
        f"{settings.get('seeds')} seeds, each with its own split that all methods share. The epoch is "
        "chosen on validation images of the training distribution. Accuracy in percent, mean ± standard error."
    )
    if (settings.get("epochs"), settings.get("resnet")) != PAPER_SCHEDULE:
        how += f" Not the paper's schedule ({PAPER_SCHEDULE[0]} epochs, {PAPER_SCHEDULE[1]})."
    return source + how


def _finding(summary: Summary, titled: Rows) -> str:
    return " ".join(_context_shift(summary, titled))


def _context_shift(summary: Summary, titled: Rows) -> list[str]:
    """Say how much plain training loses where the contexts change."""
    plain = [key for key, row in ROWS.items() if row.baseline is None and {(key, "1:5"), (key, "5:1")} <= set(summary)]
    if not plain:
        return []
    key = "resnet" if "resnet" in plain else plain[0]
    home, away = summary[key, "5:1"].accuracy, summary[key, "1:5"].accuracy
    return [f"{titled[key].title} is right for {home:.1f} % at 5:1, as in training, and for {away:.1f} % at 1:5."]


def _accuracy_plot(summary: Summary, titled: Rows) -> Plot:
    series = []
    for number, row in enumerate(titled.values()):
        ours = {ratio: summary[row.key, ratio] for ratio in RATIOS if (row.key, ratio) in summary}
        if ours:
            means, errors = ([line[place] for line in ours.values()] for place in (0, 1))
            series.append(Series(row.title, list(ours), means, errors, colour=number))
    at_hardest = {one.name: one.y[0] for one in series}
    best = max(at_hardest, key=at_hardest.__getitem__)
    text = f"At {series[0].x[0]}, farthest from training, {best} has the highest mean, {at_hardest[best]:.1f} %."
    title = "Accuracy against the dominant ratio of the test set, with standard errors"
    return Plot(title, text, "dominant ratio (training: 5:1)", "accuracy, %", series)


def _accuracy_table(rows: Sequence[ContextsRow], summary: Summary, trainings: dict[str, list[pd.DataFrame]]) -> Table:
    lines = []
    with_ess = any(weighs_samples(row.objective) for row in rows)
    for row in rows:
        cells = [_mean_cell(summary.get((row.key, test))) for test in COLUMNS]
        cells += [_ess_cell(row, trainings.get(row.key, []))] if with_ess else []
        lines.append(Row(row.title, tuple(cells)))
        if row.paper is not None:
            absent = Missing("not in the paper")
            paper = [absent if value is None else Number(value, digits=2) for value in row.paper]
            rest = [absent] * (len(cells) - len(paper))
            lines.append(Row("in the paper, on NICO", (*paper, *rest), quiet=True))
    caption = "Accuracy in percent by dominant ratio"
    columns = [*COLUMNS, ESS] if with_ess else COLUMNS
    return Table(caption, "method", columns, lines, note=PAPER_NOTE + (ESS_NOTE if with_ess else ""))


def _mean_cell(line: Line | None) -> Cell:
    return Missing() if line is None else Number(line.accuracy, line.error)


def _ess_cell(row: ContextsRow, trainings: list[pd.DataFrame]) -> Cell:
    """Return the effective sample size of a weighting's last epochs, or why there is none."""
    if not weighs_samples(row.objective):
        return Missing("no weighting")
    sizes = [curve["effective_sample_size"].iloc[-1] for curve in trainings if "effective_sample_size" in curve.columns]
    if not sizes:
        return Missing("not recorded")
    mean = sum(sizes) / len(sizes)
    return f"{mean:.4f}, did not act" if mean > ACTS_BELOW else Number(mean, digits=2)


def _differences(summary: Summary, titled: Rows) -> list[Table]:
    lines = []
    for row in titled.values():
        if row.baseline is not None:
            differences = _paired_with_baseline(summary, row)
            if any(one is not None for one in differences.values()):
                cells = tuple(difference_cell(differences[test], 1) for test in COLUMNS)
                lines.append(Row(f"{row.title} − {titled[row.baseline].title}", cells))
    caption = "Differences to plain training of the same backbone, in points, over paired seeds"
    return [Table(caption, "difference", COLUMNS, lines)] if lines else []


def _paired_with_baseline(summary: Summary, row: ContextsRow) -> dict[str, PairedDifference | None]:
    lines = {test: summary.get((row.key, test)) for test in COLUMNS}
    return {
        test: None
        if line is None or math.isnan(line.difference)
        else PairedDifference(line.difference, line.difference_error, int(line.seeds))
        for test, line in lines.items()
    }


def _trainings(run: Run, problems: list[str]) -> dict[str, list[pd.DataFrame]]:
    """Return the curves of the trainings by the key of their row, in the order of the table."""
    found: dict[str, list[pd.DataFrame]] = {key: [] for key in ROWS}
    for training in runs_within(run, problems):
        curves, key = read_metrics(training, problems), training.folder.parent.name
        if key in ROWS and curves is not None and len(curves):
            found[key].append(curves)
    return {key: curves for key, curves in found.items() if curves}
