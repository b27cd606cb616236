"""Colored-MNIST in the report: our figures beside the published ones, and what PFDL's weight
does.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from pfdl.runs import Run
from pfdl_lab.colored_mnist.environments import TRAIN_COLOR_FLIPS
from pfdl_lab.colored_mnist.rows import (
    CHOOSING,
    ERM,
    IRM,
    IRM_PFDL,
    MAIN_ROWS,
    PAIRS,
    ROWS,
    ColoredMNISTRow,
)
from pfdl_lab.colored_mnist.run import FULL, PICTURE, WORST_GROUP
from pfdl_lab.pairing import PairedDifference, paired
from pfdl_lab.report.blocks import (
    Block,
    Cell,
    Gallery,
    Heading,
    Missing,
    Number,
    Plot,
    Section,
    Table,
    TableLine,
    Text,
    Thumbnail,
)
from pfdl_lab.report.lines import Series, plot_lines
from pfdl_lab.report.reading import Columns
from pfdl_lab.statistics import difference_cell, judge, judged_cell, judged_note, mean_cell

KIND = "colored-mnist"
TITLE = "Colored digits (Colored-MNIST)"
SPLITS = ("train", "test")
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
    present = set(results["row"])
    planned = [key for key in run.settings.get("rows") or ROWS if key in ROWS]
    blocks: list[Block] = [Text(words, "warning") for words in _cautions(run, planned, present)]
    if (picture := run.folder / PICTURE).is_file():
        alt = (
            "Digits of the two training environments and, in the last row, of the test environment"
        )
        title = "Colour follows the label in training and opposes it in the test"
        blocks.append(Gallery(title, [Thumbnail(picture.read_bytes(), alt)]))
    blocks += _plane(ends)
    blocks.append(_main_table(ends, {*planned, *present}))
    blocks += [*_differences(ends), *_chosen(results, ends), *_risks(ends), *_extras(ends)]
    return Section(TITLE, blocks, _finding(results, ends))


def choose_by_worst_group(
    results: pd.DataFrame, candidates: Sequence[ColoredMNISTRow]
) -> pd.DataFrame:
    """Return for each restart the line, of all candidates and steps, with the best worst inferred
    group held out.

    Args:
        results: Lines with ``row``, ``restart``, ``step`` and the accuracy of the worst group on
            held-out images of the training environments; a group is one class in one inferred
            context.
        candidates: Rows to choose from.

    Returns:
        One line per restart; in a tie, the candidate that comes first, at its earliest step.
    """
    order = {row.key: number for number, row in enumerate(candidates)}
    chosen = results[results["row"].isin(order)].dropna(subset=WORST_GROUP)
    chosen = chosen.assign(order=chosen["row"].map(order)).sort_values(
        ["order", "step"], kind="stable"
    )
    return chosen.loc[chosen.groupby("restart")[WORST_GROUP].idxmax()].drop(columns="order")


def _cautions(run: Run, planned: Sequence[str], present: set[str]) -> list[str]:
    """Say what about a run is not the published protocol."""
    settings, found = run.settings, []
    if undone := [key for key in planned if key not in present]:
        found.append(
            f"Unfinished: {len(planned) - len(undone)} of {len(planned)} rows of the table are"
            " done."
        )
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


def _finding(results: pd.DataFrame, ends: pd.DataFrame) -> str:
    """Say in one sentence what ERM does, and what the row without environment labels does
    instead.
    """
    train, test = (_accuracies(ends, ERM, split) for split in SPLITS)
    if not len(test):
        return ""
    sentence = (
        f"ERM is right for {train.mean():.0f} % in training and {test.mean():.0f} % where the"
        " colours are reversed"
    )
    chosen = choose_by_worst_group(results, CHOOSING["GroupDRO"])
    if not len(chosen):
        return f"{sentence}."
    return (
        f"{sentence}; GroupDRO with inferred contexts for {chosen['test_accuracy'].mean():.0f} %"
        " there."
    )


def _main_table(ends: pd.DataFrame, shown: set[str]) -> Table:
    absent = (Missing("not published"),) * 2
    lines = []
    for row in (row for row in MAIN_ROWS if row.key in shown):
        ours: list[Cell] = [mean_cell(_accuracies(ends, row, split), 2) for split in SPLITS]
        lines.append(
            TableLine(row.title, (*ours, *(row.published or absent), *(row.paper or absent)))
        )
    columns = [
        *SPLITS,
        "published train",
        "published test",
        "PFDL paper's train",
        "PFDL paper's test",
    ]
    return Table("Accuracy in percent at the last step", "method", columns, lines)


def _differences(ends: pd.DataFrame) -> list[Block]:
    """Show each row with PFDL beside the same without; on fresh restarts these are the declared
    tests of the page.
    """
    pairs = [(row, base) for row, base in PAIRS if {row.key, base.key} <= set(ends["row"])]
    train = [_difference(ends, row, base, "train") for row, base in pairs]
    test = [_difference(ends, row, base, "test") for row, base in pairs]
    lines = []
    for (row, base), seen, judged in zip(pairs, train, judge(test), strict=True):
        cells = (difference_cell(seen, 2), judged_cell(judged))
        lines.append(TableLine(f"{row.title} − {base.title}", cells))
    caption = "Differences over paired restarts, in points of accuracy"
    note = judged_note(f"{len(lines)} of this table")
    return [Table(caption, "difference", SPLITS, lines, note=note)] if lines else []


def _chosen(results: pd.DataFrame, ends: pd.DataFrame) -> list[Block]:
    """Show the rows whose l2 weight and step to stop at are chosen by the worst group held out."""
    lines = []
    for title, candidates in CHOOSING.items():
        chosen = choose_by_worst_group(results, candidates)
        if not {row.key for row in candidates} <= set(results["row"]) or not len(chosen):
            continue
        l2 = chosen["row"].map(lambda key: f"{ROWS[key].config.l2:.2g}").value_counts()
        columns = ("train_accuracy", "test_accuracy", WORST_GROUP)
        cells: list[Cell] = [mean_cell(chosen[column], 2) for column in columns]
        cells.append(Number(chosen["step"].median(), digits=0))
        cells.append(
            ", ".join(f"{value} ({times} of {len(chosen)})" for value, times in l2.items())
        )
        cells.append(mean_cell(_accuracies(ends, candidates[0], "test"), 2))
        lines.append(TableLine(title, tuple(cells)))
    if not lines:
        return []
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
    return [Heading("With l2 and stopping chosen"), Table(caption, "method", headers, lines)]


def _plane(ends: pd.DataFrame) -> list[Plot]:
    points = []
    for number, row in enumerate(MAIN_ROWS):
        train, test = (_accuracies(ends, row, split) for split in SPLITS)
        if len(train):
            points.append(
                Series(row.title, train.tolist(), test.tolist(), style="markers", colour=number)
            )
    title = "Training against test accuracy"
    return plot_lines(
        title,
        "A point is a restart.",
        "training accuracy, %",
        "test accuracy, %",
        points,
        is_cloud=True,
    )


def _risks(ends: pd.DataFrame) -> list[Block]:
    """Show the risk on held-out rows, by which PFDL's weight can be chosen without a look at the
    test.
    """
    lines = []
    for row in (IRM, *IRM_PFDL):
        own = ends[ends["row"] == row.key]
        if len(own):
            lines.append(
                TableLine(row.title, tuple(Number(own[risk].mean(), digits=4) for risk in RISKS))
            )
    columns = [f"flips {flip:g}" for flip in TRAIN_COLOR_FLIPS]
    return (
        [Table("Risk on held-out rows, by PFDL's weight", "method", columns, lines)]
        if len(lines) > 1
        else []
    )


def _extras(ends: pd.DataFrame) -> list[Block]:
    """Show rows that were measured once and that the command no longer trains, by their keys."""
    lines = []
    for key, own in ends.groupby("row", sort=False):
        if key not in ROWS:
            cells = tuple(mean_cell(own[f"{split}_accuracy"], 2) for split in SPLITS)
            lines.append(TableLine(str(key), cells))
    caption = "Also measured: rows of results.csv that the command no longer trains"
    return [Table(caption, "row", SPLITS, lines)] if lines else []


def _difference(
    ends: pd.DataFrame, row: ColoredMNISTRow, base: ColoredMNISTRow, split: str
) -> PairedDifference | None:
    return paired(_accuracies(ends, row, split), _accuracies(ends, base, split))


def _accuracies(ends: pd.DataFrame, row: ColoredMNISTRow, split: str) -> pd.Series[float]:
    chosen = ends[ends["row"] == row.key].set_index("restart")
    return chosen[f"{split}_accuracy"].sort_index()
