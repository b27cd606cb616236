"""The experiment on images in the report: tables and pictures of each data set."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pfdl.runs import Run
from pfdl_lab.images.config import NICO
from pfdl_lab.images.rows import DECLARED, RATIOS, find_row
from pfdl_lab.images.run import KIND as KIND
from pfdl_lab.images.tables import (
    WHEN,
    Measured,
    accuracies,
    differences,
    measure,
    probes,
    title_of,
)
from pfdl_lab.images.testing import LAST
from pfdl_lab.report.blocks import Block, Heading, Plot, Section, Text
from pfdl_lab.report.lines import plot_lines
from pfdl_lab.report.reading import Columns
from pfdl_lab.statistics import difference_cell, mean_cell

TITLE = "Images under context shift"
COLUMNS = Columns(
    words=("data", "backbone", "row", "epoch", "test"),
    numbers=("seed", "value"),
    keys=("data", "backbone", "row", "seed", "epoch", "test"),
)
DRAWN = (*DECLARED[1:], "level", "weight-decay", "standardised")
"""The rows whose differences are drawn along the training; of others the tables say enough."""

MOST_DRAWN = 15
"""With more rows a picture has no room beside its legend."""

SAID = (
    "epochs",
    "decay_every",
    "image_size",
    "batch_size",
    "learning_rate",
    "precision",
    "validation",
    "test_every",
)
"""Settings that stand above the tables."""


def build(run: Run, results: pd.DataFrame) -> Section:
    """Build the section of one run."""
    if "table" in results:
        results = results.assign(data=results["data"] + ", " + results["table"])
    known = [row for row in results["row"].unique() if _is_known(row)]
    parts = measure(results[results["row"].isin(known)])
    blocks: list[Block] = [Text(_settings(run, results))]
    if not parts:
        return Section(TITLE, [*blocks, Text("No finished results yet.", "warning")])
    for part in parts:
        blocks += [Heading(part.name), *_blocks(part, with_paper=_is_papers_protocol(run))]
    return Section(TITLE, blocks)


def _is_known(row: object) -> bool:
    try:
        find_row(str(row), measured=True)
    except ValueError:
        return False
    return True


def _settings(run: Run, results: pd.DataFrame) -> str:
    """Name the settings, the seeds, the revision of the code and the hardware."""
    said: dict[str, Any] = {name.replace("_", " "): run.settings.get(name) for name in SAID}
    if run.settings.get("device") == "cpu":
        said["precision"] = "32"  # whatever was asked for
    seeds = sorted({int(seed) for seed in results["seed"]})
    said["seeds"] = f"{seeds[0]} to {seeds[-1]}" if seeds else None
    said["revision"] = run.made_with.get("git_revision")
    hardware = run.made_with.get("hardware")
    said["GPU"] = ", ".join(hardware.get("gpu") or []) if isinstance(hardware, dict) else None
    return (
        "; ".join(f"{name}: {value}" for name, value in said.items() if value not in (None, ""))
        + "."
    )


def _is_papers_protocol(run: Run) -> bool:
    """Return whether a run has the paper's schedule; beside others its figures mislead.

    Runs of several lengths, such as those of short budgets, have no one number of epochs in their
    settings.
    """
    schedule = all(run.settings.get(name) == NICO[name] for name in ("epochs", "learning_rate"))
    return schedule and run.settings.get("decay_every") in (None, NICO["epochs"] // 2)


def _blocks(part: Measured, *, with_paper: bool) -> list[Block]:
    """Return what is shown of one data set: first the accuracies, which a terminal shows beside the
    paper's.
    """
    blocks: list[Block] = []
    for epoch in [epoch for epoch in WHEN if part.has(epoch)]:
        blocks.append(accuracies(part, epoch, with_paper=with_paper and epoch == LAST))
        if compared := differences(part, epoch):
            blocks.append(compared)
    if part.epochs:
        blocks += [*_curves(part, "1:5"), *_curves(part, "5:1")]
    elif set(RATIOS) <= set(part.tests) and len(part.rows) <= MOST_DRAWN:
        blocks += _by_ratio(part)
    table = probes(part)
    return [*blocks, table] if table else blocks


def _by_ratio(part: Measured) -> list[Plot]:
    """Draw accuracy against the dominant ratio of the test set."""
    lines = {}
    for row in part.rows:
        lines[title_of(row)] = {ratio: mean_cell(part.of(row, LAST, ratio), 1) for ratio in RATIOS}
    summary = "Mean over the seeds at the last epoch, with standard errors; training has 5:1."
    title = "Accuracy against the dominant ratio of the test set"
    return plot_lines(title, summary, "dominant ratio", "accuracy, %", lines)


def _curves(part: Measured, test: str) -> list[Plot]:
    """Draw the paired differences to ERM along the training."""
    lines = {}
    for row in (row for row in part.rows if row in DRAWN):
        lines[title_of(row)] = {
            epoch: difference_cell(part.difference(row, "erm", epoch, test), 1)
            for epoch in part.epochs
        }
    summary = (
        "Paired over the seeds, at epochs of the training; above 0: more often right than ERM."
    )
    title = f"Difference to ERM along the training, tested at {test}"
    return plot_lines(title, summary, "epoch", "points ± standard error", lines)
