"""Colored-MNIST in the report: our figures beside the published ones, and what PFDL's weight does."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from pfdl._internal.runs import Run
from pfdl.data.colored_mnist import TRAIN_COLOR_FLIPS
from pfdl.report.blocks import Block, Gallery, Glance, Heading, Section, Text, Thumbnail
from pfdl.report.plots import Plot, Series
from pfdl.report.tables import Cell, Missing, Number, Row, Table
from pfdl_lab.colored_mnist.corrected import OBJECTIVE, Corrected, read_corrected
from pfdl_lab.colored_mnist.rows import (
    CANDIDATES,
    ERM,
    ERM_PFDL,
    IRM,
    IRM_PFDL,
    MAIN_ROWS,
    PAIRS,
    PAPER_IRM_PFDL,
    ROWS,
    WITHOUT_LABELS,
    ColoredMNISTRow,
    PublishedAccuracy,
)
from pfdl_lab.colored_mnist.run import FULL, PICTURE
from pfdl_lab.colored_mnist.selection import (
    RISKS,
    WORST_GROUP,
    choose_by_test_environment,
    choose_by_worst_group,
    choose_on_training_environments,
)
from pfdl_lab.pairing import paired
from pfdl_lab.report.reading import read_results
from pfdl_lab.statistics import difference_cell, mean_cell, mean_series, verdict

KIND = "colored-mnist"
TITLE = "Colored digits (Colored-MNIST)"
SPLITS = ("train", "test")
TUNED_ON_TEST = (
    "The settings of IRM, ERM and the grayscale oracle are those of IRM's authors, who picked them with the test "
    "environment in view; V-REx's are the defaults of its authors' code. Rows that build on them carry that advantage. "
    "The PFDL paper says that its initial learning rate is 0.001 for all methods, which is not IRM's (0.00049)."
)
CRITERION = (
    "Chosen on training environments: among the weights whose held-out risk, averaged over both training environments, "
    "is within one standard error of the lowest, the one whose held-out risk differs least between the two. Held-out "
    "rows are digits that take no part in training, coloured like the training environments. Chosen by the test "
    "environment: the weight with the highest mean test accuracy. That choice needs the labels of the test "
    "environment; it is shown because the published settings of IRM were found that way."
)
WITHOUT_LABELS_TEXT = (
    "Both training environments are pooled, and no environment or colour is labelled: contexts are inferred. The l2 "
    "weight and the step to stop at are chosen for each restart by the worst group, one class in one inferred context, "
    "on held-out images of the training environments. No test image plays a part. The last column shows what the same "
    "networks would reach if stopped at the last step, with the first l2 weight."
)
Chosen = dict[str, tuple[ColoredMNISTRow, ColoredMNISTRow]]


def build(run: Run, problems: list[str]) -> Section:
    """Build the section of one run."""
    numbers = ["restart", *(f"{split}_accuracy" for split in SPLITS), *RISKS]
    results = read_results(run, ["row"], numbers, [], problems)
    results = results.assign(**{name: results.get(name, float("nan")) for name in ("step", WORST_GROUP)})
    results = results.drop_duplicates(["row", "restart", "step"], ignore_index=True)
    ends = results.loc[
        results.groupby(["row", "restart"])["step"].transform("max").eq(results["step"]) | results["step"].isna()
    ]
    present = set(results["row"])
    planned = [key for key in run.settings.get("rows") or ROWS if key in ROWS]
    blocks: list[Block] = [Text(_introduction(run))]
    if undone := [key for key in planned if key not in present]:
        done = len(planned) - len(undone)
        blocks.append(Text(f"Unfinished: {done} of {len(planned)} rows of the table are done.", "warning"))
    chosen = _chosen(ends)
    if (picture := run.folder / PICTURE).is_file():
        alt = "Digits of the two training environments and, in the last row, of the test environment"
        blocks.append(
            Gallery(
                "Colour follows the label in training and opposes it in the test",
                [Thumbnail(picture.read_bytes(), alt)],
            )
        )
    blocks += [
        *([_plane(ends)] if present else []),
        _main_table(ends, {*planned, *present}, chosen),
        Text(TUNED_ON_TEST),
        *([Text(CRITERION)] if chosen else []),
    ]
    if pairs := [(row.title, row, base) for row, base in PAIRS if {row.key, base.key} <= present]:
        pairs += [(title, row, base) for title, (row, base) in chosen.items()]
        blocks.append(_difference_table(ends, pairs))
    blocks += [*_without_labels(results, ends), *_trade_off(ends)]
    corrected = read_corrected(run.folder)
    return Section(TITLE, blocks, _finding(ends), None if corrected is None else _glance(results, ends, corrected))


def _introduction(run: Run) -> str:
    settings = run.settings
    text = (
        f"Digits: {settings.get('digits')}. Colour follows the label in the two training environments and opposes it "
        f"in the test environment; {settings.get('restarts')} restarts, paired over methods. PFDL reads the last "
        f"hidden layer, {settings.get('feature_rows')} rows a step; its network g has "
        f"{settings.get('decomposition_width')} hidden units and is the paper's shared g, unless a row says indexed g."
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


def _finding(ends: pd.DataFrame) -> str:
    sentences = []
    erm = _accuracies(ends, ERM, "test")
    if len(erm):
        train = _accuracies(ends, ERM, "train").mean()
        sentences.append(
            f"ERM falls from {train:.1f} % in training to {erm.mean():.1f} % where the colours are reversed."
        )
    for base, row in ((IRM, IRM_PFDL), (ERM, ERM_PFDL)):
        difference = paired(_accuracies(ends, row, "test"), _accuracies(ends, base, "test"))
        if difference is not None:
            sentences.append(verdict(f"{base.title}+PFDL", base.title, {"the test environment": difference}))
    return " ".join(sentences)


def _glance(results: pd.DataFrame, ends: pd.DataFrame, found: Corrected) -> Glance:
    """Show digits that ERM gets wrong and an objective that knows no environment gets right."""
    inferred = choose_by_worst_group(results, WITHOUT_LABELS[OBJECTIVE])
    title = f"{OBJECTIVE} with inferred contexts"
    figures = {
        row.title: [_accuracies(ends, row, split) for split in SPLITS]
        for row in MAIN_ROWS
        if row.key in set(ends["row"])
    }
    figures[title] = [inferred[f"{split}_accuracy"] for split in SPLITS]
    rows = [Row(name, tuple(mean_cell(one, 1, deviation=True) for one in both)) for name, both in figures.items()]
    test = inferred["test_accuracy"].mean()
    sentence = (
        f"ERM learns the colour: {figures[ERM.title][0].mean():.0f} % right in training, "
        f"{figures[ERM.title][1].mean():.0f} % where the colours are reversed; {title} reaches {test:.0f} % there. Of "
        f"{found.digits} test digits ERM gets {found.wrong} wrong; {OBJECTIVE} gets {found.corrected} of these right, "
        f"and {found.newly_wrong} wrong that ERM had right (one restart)."
    )
    picture = Gallery(
        f"Test digits that ERM gets wrong and {OBJECTIVE} with inferred contexts gets right",
        [Thumbnail(found.picture, "Coloured digits of the test environment")],
    )
    table = Table("Accuracy in percent", "method", SPLITS, rows, error_name="standard deviation")
    return Glance(sentence, table, picture)


def _chosen(ends: pd.DataFrame) -> Chosen:
    """Return for each base whose candidates have all run the chosen one, by its title, and the base."""
    chosen: Chosen = {}
    for title, (base, candidates) in CANDIDATES.items():
        if {row.key for row in candidates} <= set(ends["row"]):
            chosen[f"{title}, chosen on training environments"] = (
                choose_on_training_environments(ends, candidates),
                base,
            )
            chosen[f"{title}, chosen by the test environment (oracle)"] = (
                choose_by_test_environment(ends, candidates),
                base,
            )
    return chosen


def _main_table(ends: pd.DataFrame, keys: set[str], chosen: Chosen) -> Table:
    entries: list[tuple[str, ColoredMNISTRow, PublishedAccuracy | None]] = [
        (row.title, row, row.paper) for row in MAIN_ROWS if row.key in keys
    ]
    main = {row.key for row in MAIN_ROWS}
    single = [] if chosen else [row for _, rows in CANDIDATES.values() for row in rows if row.key not in main]
    entries += [(row.title, row, None) for row in single if row.key in set(ends["row"])]
    entries += [(title, row, PAPER_IRM_PFDL if base is IRM else None) for title, (row, base) in chosen.items()]
    lines = []
    for title, row, paper in entries:
        ours: list[Cell] = [mean_cell(_accuracies(ends, row, split), 2, deviation=True) for split in SPLITS]
        lines.append(Row(title, (_weight(row), *ours, *_printed(row.published), *_printed(paper))))
    return Table(
        "Accuracy in percent, mean ± standard deviation over restarts",
        "method",
        ["λ", "train", "test", "published train", "published test", "PFDL paper's train", "PFDL paper's test"],
        lines,
        error_name="standard deviation",
    )


def _weight(row: ColoredMNISTRow) -> Cell:
    if not row.pfdl_weight:
        return Missing("without PFDL")
    return f"{row.pfdl_weight:g}" + (f", {row.form}" if row.form else "")


def _printed(figures: PublishedAccuracy | None) -> tuple[Cell, Cell]:
    absent = Missing("not published")
    return (figures.train, figures.test) if figures else (absent, absent)


def _difference_table(ends: pd.DataFrame, pairs: Sequence[tuple[str, ColoredMNISTRow, ColoredMNISTRow]]) -> Table:
    lines = []
    for title, row, base in pairs:
        found = [paired(_accuracies(ends, row, split), _accuracies(ends, base, split)) for split in SPLITS]
        lines.append(Row(f"{title} − {base.title}", (_weight(row), *(difference_cell(one, 2) for one in found))))
    return Table("Differences over paired restarts, in points of accuracy", "difference", ["λ", *SPLITS], lines)


def _without_labels(results: pd.DataFrame, ends: pd.DataFrame) -> list[Block]:
    lines = []
    for title, candidates in WITHOUT_LABELS.items():
        if not {row.key for row in candidates} <= set(results["row"]):
            continue
        chosen = choose_by_worst_group(results, candidates)
        l2 = chosen["row"].map(lambda key: f"{ROWS[key].config.l2:.2g}").value_counts()
        cells: list[Cell] = [
            mean_cell(chosen[column], 2, deviation=True) for column in ("train_accuracy", "test_accuracy")
        ]
        cells += [mean_cell(chosen[WORST_GROUP], 2, deviation=True), Number(chosen["step"].median(), digits=0)]
        cells.append(", ".join(f"{value} ({times} of {len(chosen)})" for value, times in l2.items()))
        cells.append(mean_cell(_accuracies(ends, candidates[0], "test"), 2, deviation=True))
        lines.append(Row(title, tuple(cells)))
    if not lines:
        return []
    columns = ["train", "test", "held-out worst inferred group", "step (median)", "l2", "test at the last step"]
    caption = "Accuracy in percent without environment labels, mean ± standard deviation over restarts"
    table = Table(caption, "method", columns, lines, error_name="standard deviation")
    return [Heading("Without environment labels"), Text(WITHOUT_LABELS_TEXT), table]


def _plane(ends: pd.DataFrame) -> Plot:
    points = []
    for number, row in enumerate(MAIN_ROWS):
        train, test = (_accuracies(ends, row, split) for split in SPLITS)
        if len(train):
            points.append(Series(row.title, train.tolist(), test.tolist(), style="markers", colour=number))
    means = {point.name: sum(point.y) / len(point.y) for point in points}
    best = max(means, key=means.__getitem__) if means else ""
    summary = f"A point is a restart. {best} has the highest mean test accuracy, {means[best]:.1f} %." if means else ""
    title = "Training against test accuracy"
    return Plot(title, summary, "training accuracy, %", "test accuracy, %", points, with_table=False)


def _trade_off(ends: pd.DataFrame) -> list[Block]:
    """Return what PFDL's weight does to accuracy and held-out risk, as a plot and as a table."""
    present, lines = set(ends["row"]), list[Row]()
    series: list[Series] = []
    for title, (base, candidates) in CANDIDATES.items():
        rows = [row for row in candidates if row.key in present]
        if base.key not in present or len(rows) < 2:
            continue
        for split in SPLITS:
            values = {row.pfdl_weight: _accuracies(ends, row, split) for row in rows if "pairwise" not in row.form}
            line = mean_series(f"{title}, {split}", values, len(series) + 1)
            series += [line] if line is not None else []
        lines += [_trade_off_row(ends, row, base) for row in (base, *rows)]
    if not lines:
        return []
    summary = "A stronger penalty moves accuracy from training to test where the two lines of a method draw together."
    plot = Plot("Accuracy against PFDL's weight", summary, "λ", "accuracy, %", series, log_x=True)
    columns = [*SPLITS, "test − without PFDL", *(f"held-out risk, flips {flip:g}" for flip in TRAIN_COLOR_FLIPS)]
    caption = "PFDL's weight: accuracy in percent and risk on held-out rows, mean ± standard error over restarts"
    return [plot, Table(caption, "method", columns, lines)]


def _trade_off_row(ends: pd.DataFrame, row: ColoredMNISTRow, base: ColoredMNISTRow) -> Row:
    cells: list[Cell] = [mean_cell(_accuracies(ends, row, split), 2) for split in SPLITS]
    gain = paired(_accuracies(ends, row, "test"), _accuracies(ends, base, "test"))
    cells.append(Missing("without PFDL") if row is base else difference_cell(gain, 2))
    cells += [Number(ends.loc[ends["row"] == row.key, risk].mean(), digits=4) for risk in RISKS]
    return Row(row.title, tuple(cells))


def _accuracies(ends: pd.DataFrame, row: ColoredMNISTRow, split: str) -> pd.Series[float]:
    chosen = ends[ends["row"] == row.key].set_index("restart")
    return chosen[f"{split}_accuracy"].sort_index()
