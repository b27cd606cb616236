"""Single trainings in the report: how they ended, by ratio and by context, and their curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from pfdl._internal.runs import Run
from pfdl.report.blocks import Block, Heading, Section, Text
from pfdl.report.plots import Plot, Series
from pfdl.report.reading import read_evaluation, read_metrics
from pfdl.report.sections.curves import curve_plots
from pfdl.report.tables import Cell, Missing, Number, Row, Table

KIND = "training"
TITLE = "Trainings"
NOT_EVALUATED = Missing("not evaluated yet")


def build(runs: Sequence[Run], problems: list[str]) -> Section:
    """Build one section for all trainings, so that they can be compared."""
    names = _names(runs)
    curves = {name: read_metrics(run, problems) for name, run in zip(names, runs, strict=True)}
    evaluations = {name: read_evaluation(run, problems) for name, run in zip(names, runs, strict=True)}
    blocks: list[Block] = [
        Text(
            "Each training keeps its best weights on validation images of the training distribution; test images are "
            "looked at once, at the end. One seed each: differences between single trainings may be chance."
        ),
        _overview(dict(zip(names, runs, strict=True)), curves, evaluations),
    ]
    if (plot := _ratio_plot(evaluations)) is not None:
        blocks.append(plot)
    blocks += [
        table
        for group, what in (("by_context", "context"), ("by_class", "class"))
        if (table := _group_table(evaluations, group, what)) is not None
    ]
    logged = {name: [curve] for name, curve in curves.items() if curve is not None and len(curve)}
    if logged:
        blocks += [Heading("Training curves"), curve_plots(logged)]
    return Section(TITLE, blocks)


def _names(runs: Sequence[Run]) -> list[str]:
    """The names of the folders, with those of their parents where two are the same."""
    short = [run.folder.resolve().name for run in runs]
    return [
        name if short.count(name) == 1 else f"{run.folder.resolve().parent.name}/{name}"
        for name, run in zip(short, runs, strict=True)
    ]


def _overview(
    runs: Mapping[str, Run],
    curves: Mapping[str, pd.DataFrame | None],
    evaluations: Mapping[str, Mapping[str, Any] | None],
) -> Table:
    lines = []
    for name, run in runs.items():
        given = run.settings.get("training")
        config: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        curve, evaluation = curves[name], evaluations[name]
        epochs = 0 if curve is None else len(curve)
        may_stop = " at most" if config.get("patience") is not None else ""
        cells: list[Cell] = [str(config.get(key, "?")) for key in ("backbone", "objective", "seed")]
        cells.append(f"{epochs} of{may_stop} {config.get('epochs', '?')}")
        cells.append(_best(curve))
        if evaluation is None:
            cells += [NOT_EVALUATED] * 3
        else:
            shares = (evaluation["overall"], evaluation["worst_group"]["accuracy"])
            cells += [*(Number(100 * share) for share in shares), Number(evaluation["calibration_error"], digits=3)]
        lines.append(Row(name, tuple(cells)))
    columns = ["backbone", "objective", "seed", "epochs", "best validation", "test", "worst group", "calibration error"]
    return Table("Trainings: accuracies in percent", "run", columns, lines)


def _best(curve: pd.DataFrame | None) -> Cell:
    if curve is None or "val_accuracy" not in curve.columns or not len(curve):
        return Missing("no epoch finished yet" if curve is None else "no validation images")
    return Number(100 * float(curve["val_accuracy"].max()))


def _ratio_plot(evaluations: Mapping[str, Mapping[str, Any] | None]) -> Plot | None:
    lines = [
        Series(name, list(one["by_ratio"]), [100 * share for share in one["by_ratio"].values()], colour=number)
        for number, (name, one) in enumerate(evaluations.items())
        if one is not None and one["by_ratio"]
    ]
    if not lines:
        return None
    falls = {line.name: max(line.y) - min(line.y) for line in lines}
    steepest = max(falls, key=falls.__getitem__)
    summary = f"{steepest} varies most across the test ratios: by {falls[steepest]:.1f} points."
    title = "Accuracy against the dominant ratio of the test set"
    return Plot(title, summary, "dominant ratio", "accuracy, %", lines)


def _group_table(evaluations: Mapping[str, Mapping[str, Any] | None], group: str, what: str) -> Table | None:
    present = {name: one[group] for name, one in evaluations.items() if one is not None and one[group]}
    columns = list(dict.fromkeys(column for shares in present.values() for column in shares))
    if not columns:
        return None
    rows = [
        Row(
            name,
            tuple(Number(100 * shares[one]) if one in shares else Missing("not in its test set") for one in columns),
        )
        for name, shares in present.items()
    ]
    return Table(f"Accuracy in percent by {what}", "run", columns, rows)
