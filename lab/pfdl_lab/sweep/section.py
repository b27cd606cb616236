"""A sweep in the report: validation scores of every candidate, which one they chose, and its test accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from pfdl._internal.files import read_json
from pfdl._internal.runs import Run
from pfdl.report.blocks import Block, Facts, Heading, Section, Text
from pfdl.report.plots import Plot
from pfdl.report.tables import Cell, Missing, Number, Row, Table
from pfdl.vision.config import SELECTIONS
from pfdl_lab.report.reading import read_results
from pfdl_lab.statistics import mean_cell, mean_series
from pfdl_lab.sweep.run import CHOSEN, FAILED

KIND = "sweep"
TITLE = "Sweep over settings"
RULES = {"accuracy": "accuracy", "worst-class": "accuracy of the worst class", "worst-group": "worst-group accuracy"}


def build(run: Run, problems: list[str]) -> Section:
    """Build the section of one run."""
    results = read_results(run, ["candidate", "score"], ["seed", "value"], ["candidate", "seed", "score"], problems)
    select = str(run.settings.get("select", "accuracy"))
    rule = RULES.get(select, select)
    blocks: list[Block] = [
        Text(
            f"Every candidate was trained on the same splits and seeds. The candidate with the highest {rule} on "
            "validation images, mean over the seeds, is chosen; the same score chose the epoch of each training. Only "
            "the chosen candidate was tested."
        )
    ]
    if not len(results):
        return Section(TITLE, [*blocks, Text("No finished results yet.", "warning")])
    choice = _read_choice(run, problems)
    chosen = None if choice is None else str(choice["candidate"])
    blocks.append(_scores(results, select, chosen))
    if (plot := _plot(results, select, rule)) is not None:
        blocks.append(plot)
    if choice is None:
        return Section(TITLE, [*blocks, Text("The sweep is not finished, so nothing is chosen yet.", "warning")])
    blocks += [Heading("The chosen candidate"), *_tested(choice), _settings(choice)]
    return Section(TITLE, blocks, describe_choice(choice))


def describe_choice(choice: Mapping[str, Any]) -> str:
    """Say what was chosen, why, and how it does on test images.

    Args:
        choice: What ``chosen.json`` holds.
    """
    rule = RULES[choice["select"]]
    sentence = f"Chosen by the {rule} on validation images ({_percent(choice['validation'])}): {choice['candidate']}."
    if not choice["test"]:
        return f"{sentence} There are no test images."
    tests = ", ".join(f"{test} {_percent(value)}" for test, value in choice["test"].items())
    return f"{sentence} Accuracy on test images: {tests}."


def _read_choice(run: Run, problems: list[str]) -> dict[str, Any] | None:
    path = run.folder / CHOSEN
    try:
        choice = read_json(path)
        if not isinstance(choice, dict):
            raise ValueError(f"{path} is not what a sweep writes.")
        describe_choice(choice)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        problems.append(f"{path} was left out: {error}")
        return None
    return choice


def _scores(results: pd.DataFrame, select: str, chosen: str | None) -> Table:
    scores = [score for score in SELECTIONS if (results["score"] == score).any()]
    lines = []
    for name in results["candidate"].unique():
        part = results[results["candidate"] == name]
        failures = int((part["score"] == FAILED).sum())
        cells: list[Cell] = [Number(part["seed"].nunique(), digits=0)]
        for score in (*scores, "epoch"):
            cell = mean_cell(part.loc[part["score"] == score, "value"], 1)
            if isinstance(cell, Number) and name == chosen and score == select:
                cell = Number(cell.value, cell.error, cell.digits, strong=True, remark="chosen")
            cells.append(Missing("failed") if failures and isinstance(cell, Missing) else cell)
        lines.append(Row(str(name), (*cells, Number(failures, digits=0))))
    columns = ["seeds", *(RULES[score] for score in scores), "epoch kept", "failed"]
    return Table("Validation accuracies in percent", "candidate", columns, lines)


def _plot(results: pd.DataFrame, select: str, rule: str) -> Plot | None:
    part = results[results["score"] == select]
    values = {str(name): one["value"] for name, one in part.groupby("candidate", sort=False)}
    series = mean_series(rule, values, 0, "markers")
    if series is None or len(values) < 2:
        return None
    means = {name: float(one.mean()) for name, one in values.items()}
    best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    spread = f"From {means[worst]:.1f} % ({worst}) to {means[best]:.1f} % ({best})."
    summary = spread if means[best] > means[worst] else f"All candidates have {means[best]:.1f} %."
    title = f"Validation: {rule} of every candidate, with standard errors"
    return Plot(title, summary, "", f"{rule}, %", [series], with_table=False)


def _tested(choice: Mapping[str, Any]) -> list[Block]:
    if not choice["test"]:
        return [Text("There are no test images.")]
    cells = tuple(Number(mean, error) for mean, error in choice["test"].values())
    caption = "Accuracy on test images in percent; they played no part in the choice"
    return [Table(caption, "candidate", list(choice["test"]), [Row(choice["candidate"], cells)])]


def _settings(choice: Mapping[str, Any]) -> Facts:
    return Facts("All its settings", [(name, str(value)) for name, value in choice["settings"].items()])


def _percent(value: tuple[float, float | None]) -> str:
    return f"{Number(*value)} %"
