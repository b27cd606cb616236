"""Images under context shift in the report: the paper's Table II beside ours, by dominant ratio, and how it trained."""

from __future__ import annotations

import pandas as pd

from pfdl._internal.runs import Run
from pfdl.experiments.contexts.rows import RATIOS, ROWS, Row
from pfdl.experiments.pairing import PairedDifference, paired
from pfdl.report import tables
from pfdl.report.page import Block, Heading, Section, Text
from pfdl.report.plots import Plot, Series
from pfdl.report.reading import read_metrics, read_results, runs_within
from pfdl.report.sections.curves import curve_plots
from pfdl.report.sections.statistics import difference_cell, mean_cell, standard_error, verdict
from pfdl.report.tables import Missing, Number, Table

KIND = "contexts"
TITLE = "Images under context shift"
COLUMNS = (*RATIOS, "all", "worst group")
PAPER_SCHEDULE = (160, "resnet50")
PAPER_NOTE = (
    "Rows in the paper are the paper's figures on NICO, for orientation where the images are others. The paper's "
    "ResNet-50 row is commented out in its source, and it does not say on which network it ran DWR."
)


def build(run: Run, problems: list[str]) -> Section:
    """The section of one run."""
    results = read_results(
        run, names=["row", "test"], numbers=["seed", "accuracy"], keys=["row", "seed", "test"], problems=problems
    )
    planned_rows = [key for key in run.settings.get("rows") or ROWS if key in ROWS]
    planned = len(planned_rows) * run.settings.get("seeds", 0)
    done = len(results[["row", "seed"]].drop_duplicates())
    trainings = _trainings(run, problems)
    blocks: list[Block] = [Text(_introduction(run))]
    if done < planned:
        begun = sum(map(len, trainings.values())) - done
        more = f"; {begun} more {'has' if begun == 1 else 'have'} begun" if begun > 0 else ""
        blocks.append(Text(f"Unfinished: {done} of {planned} trainings are done{more}.", "warning"))
    differences = _differences(results)
    if len(results):
        blocks += [_accuracy_plot(results), _accuracy_table(results)]
        if differences is not None:
            blocks.append(differences)
    if trainings:
        blocks.append(Heading("Training curves"))
        blocks.append(Text("Mean over the seeds of a method; an epoch that only some reached is the mean of those."))
        blocks.append(curve_plots(trainings, {row.title: number for number, row in enumerate(ROWS.values())}))
    return Section(TITLE, blocks, _finding(results))


def _introduction(run: Run) -> str:
    settings = run.settings
    if settings.get("folder") is None:
        source = f"Images: the generated shapes (not NICO), {settings.get('per_cell')} of each class in each context."
    else:
        source = f"Images: the folder {settings['folder']}."
    how = (
        f" Trained from scratch with the dominant context at 5:1, tested at seven ratios: {settings.get('image_size')} "
        f"pixels, {settings.get('epochs')} epochs, batches of {settings.get('batch_size')}, {settings.get('resnet')}, "
        f"{settings.get('seeds')} seeds, each with its own split that all methods share. The epoch is chosen on "
        "validation images of the training distribution."
    )
    if (settings.get("epochs"), settings.get("resnet")) != PAPER_SCHEDULE:
        how += f" Not the paper's schedule ({PAPER_SCHEDULE[0]} epochs, {PAPER_SCHEDULE[1]})."
    return source + how


def _finding(results: pd.DataFrame) -> str:
    sentences = [
        verdict(row.title, "plain training of the same network", _paired_with_baseline(results, row))
        for row in ROWS.values()
        if row.baseline is not None and "pfdl" in row.objective
    ]
    shift = _context_shift(results)
    return " ".join([*shift, *(one for one in sentences if "no finished repetition" not in one)])


def _context_shift(results: pd.DataFrame) -> list[str]:
    """How much plain training loses where the contexts change."""
    for row in ROWS.values():
        cells = _cells(results, row.key)
        if row.baseline is None and {"1:5", "5:1"} <= set(cells.columns):
            home, away = cells["5:1"].mean(), cells["1:5"].mean()
            if row.key == "resnet" or not len(_cells(results, "resnet")):
                return [f"{row.title} falls from {home:.1f} % at 5:1, as in training, to {away:.1f} % at 1:5."]
    return []


def _accuracy_plot(results: pd.DataFrame) -> Plot:
    lines = []
    for number, row in enumerate(ROWS.values()):
        cells = _cells(results, row.key)
        ratios = [ratio for ratio in RATIOS if ratio in cells.columns]
        if not ratios:
            continue
        errors = [standard_error(cells[ratio].dropna()) for ratio in ratios]
        drawable = None if any(error != error for error in errors) else errors
        lines.append(Series(row.title, ratios, cells[ratios].mean().tolist(), drawable, colour=number))
    at_hardest = {line.name: line.y[0] for line in lines}
    best = max(at_hardest, key=at_hardest.__getitem__)
    summary = f"At {lines[0].x[0]}, farthest from training, {best} has the highest mean, {at_hardest[best]:.1f} %."
    axis = {"xaxis_categoryorder": "array", "xaxis_categoryarray": list(RATIOS)}
    title = "Accuracy against the dominant ratio of the test set, with standard errors"
    return Plot(title, summary, "dominant ratio (training: 5:1)", "accuracy, %", lines, layout=axis)


def _accuracy_table(results: pd.DataFrame) -> Table:
    lines = []
    for row in ROWS.values():
        cells = _cells(results, row.key)
        ours = (mean_cell(cells[test].dropna(), 1) if test in cells.columns else Missing() for test in COLUMNS)
        lines.append(tables.Row(row.title, tuple(ours)))
        if row.paper is not None:
            paper = [Missing("not in the paper") if value is None else Number(value, digits=2) for value in row.paper]
            rest = [Missing("not in the paper")] * (len(COLUMNS) - len(RATIOS))
            lines.append(tables.Row("in the paper, on NICO", (*paper, *rest), quiet=True))
    return Table("Accuracy in percent by dominant ratio", "method", COLUMNS, lines, note=PAPER_NOTE)


def _differences(results: pd.DataFrame) -> Table | None:
    lines = []
    for row in ROWS.values():
        if row.baseline is not None:
            differences = _paired_with_baseline(results, row)
            if any(one is not None for one in differences.values()):
                cells = tuple(difference_cell(differences[test], 1) for test in COLUMNS)
                lines.append(tables.Row(f"{row.title} − {ROWS[row.baseline].title}", cells))
    if not lines:
        return None
    caption = "Differences to plain training of the same backbone, in points, over paired seeds"
    return Table(caption, "difference", COLUMNS, lines)


def _paired_with_baseline(results: pd.DataFrame, row: Row) -> dict[str, PairedDifference | None]:
    assert row.baseline is not None
    ours, plain = _cells(results, row.key), _cells(results, row.baseline)
    return {
        test: paired(ours[test].dropna(), plain[test].dropna())
        if test in ours.columns and test in plain.columns
        else None
        for test in COLUMNS
    }


def _cells(results: pd.DataFrame, key: str) -> pd.DataFrame:
    """Accuracies of one row: seeds down, test sets across."""
    return results.loc[results["row"] == key].pivot_table(index="seed", columns="test", values="accuracy")


def _trainings(run: Run, problems: list[str]) -> dict[str, list[pd.DataFrame]]:
    """Curves of the trainings by the title of their row, in the order of the table."""
    found: dict[str, list[pd.DataFrame]] = {row.title: [] for row in ROWS.values()}
    for training in runs_within(run, problems):
        key = training.folder.name.rsplit("-", 2)[0]  # row, seed, split
        curves = read_metrics(training, problems)
        if key in ROWS and curves is not None and len(curves):
            found[ROWS[key].title].append(curves)
    return {title: curves for title, curves in found.items() if curves}
