"""Contexts in the features of a pretrained network: how much of what the true ones give do inferred
ones give?

Splits at 5:1, features of EfficientNet-lite0 at 96×96, a logistic readout. It is fitted four times:
plainly, with classes balanced, with the groups of the true contexts balanced, and with those of the
inferred ones; where nothing is accepted the last is that of balanced classes.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_sample_weight

from pfdl.contexts import find_contexts, group_report
from pfdl.data.context_images import store_images
from pfdl.runs import Run, claim
from pfdl_lab.grid import finish, run_grid
from pfdl_lab.images.data import ImageData, fingerprint
from pfdl_lab.images.networks import FEATURES, FROZEN, write_features
from pfdl_lab.pairing import paired
from pfdl_lab.report.blocks import Cell, Section, Table, TableLine
from pfdl_lab.report.reading import Columns
from pfdl_lab.statistics import difference_cell, mean_cell
from pfdl_lab.workers import IN_SEQUENCE, Execution

KIND = "readout"
TITLE = "A readout of pretrained features"
STRENGTH = 0.05
TESTS = ("1:5", "5:1")
ROWS = {
    "erm": "ERM",
    "classes": "classes balanced",
    "true": "true contexts",
    "inferred": "inferred contexts",
}
COLUMNS = Columns(
    numbers=("seed", "believed", *(f"{row} {test}" for row, test in product(ROWS, TESTS)))
)


def run(
    data: ImageData,
    output: Path,
    *,
    seeds: int,
    first_seed: int,
    execution: Execution = IN_SEQUENCE,
) -> pd.DataFrame:
    """Measure the splits that are missing, and write ``results.csv``.

    Args:
        data: Images in contexts.
        output: The run folder, which keeps the features.
        seeds: Splits.
        first_seed: The first seed; the others count up.
        execution: Where the readouts are fitted, and how many at a time.

    Returns:
        A line for each split: accuracies in percent, whether contexts were accepted, and how well
        they agree with the true ones.
    """
    source = data.open()
    if source is None:
        raise ValueError(f"{data.data} is generated; give images in contexts.")
    settings = {"data": data.name, "images": fingerprint(source), "command": execution.command}
    folder = output / FEATURES
    with claim(output, KIND, settings, may_change=("command",)):
        if not (folder / FEATURES).exists():
            write_features(store_images(source, folder, 96))
        tasks = [{"seed": seed} for seed in range(first_seed, first_seed + seeds)]
        function = partial(run_task, data=data, folder=folder)
        results = run_grid(function, tasks, output / "cells", execution)
        finish(results, output, "cells")
    return results


def run_task(seed: int, *, data: ImageData, folder: Path) -> list[dict[str, Any]]:
    """Fit the four readouts of one split."""
    split = data.split(seed, network=FROZEN, images=folder)
    labels = split.train.labels.numpy()
    truth = split.train.contexts.numpy()
    found = find_contexts(split.context_features(), labels, seed=seed)
    line: dict[str, Any] = {
        "believed": int(found.number > 1),
        "method": found.method,
        "contexts": found.number,
        "ari": round(group_report(labels, found.contexts, truth).ari, 3),
    }
    groups = {
        "erm": np.zeros_like(labels),
        "classes": labels,
        "true": labels * 100 + truth,
        "inferred": labels * 100 + found.contexts,
    }
    for row, group in groups.items():
        weights = compute_sample_weight("balanced", group)
        readout = LogisticRegression(C=STRENGTH, max_iter=300)
        readout.fit(split.train.inputs.numpy(), labels, sample_weight=weights)
        right = readout.predict(split.test.inputs.numpy()) == split.test.labels.numpy()
        for test in TESTS:
            line[f"{row} {test}"] = round(100 * right[split.tests[test].numpy()].mean(), 2)
    return [line]


def build(run: Run, results: pd.DataFrame) -> Section:
    """Build the section of one run."""
    by_seed = results.set_index("seed")
    lines = []
    for row, name in ROWS.items():
        cells: list[Cell] = [mean_cell(by_seed[f"{row} {test}"], 1) for test in TESTS]
        for test in TESTS:
            difference = paired(by_seed[f"{row} {test}"], by_seed[f"classes {test}"])
            cells.append(difference_cell(difference, 2))
        lines.append(TableLine(name, tuple(cells)))
    columns = [*TESTS, *(f"{test}, less balanced classes" for test in TESTS)]
    accepted = int(by_seed["believed"].sum())
    note = f"Contexts were accepted in {accepted} of {len(by_seed)} splits."
    return Section(TITLE, [Table("Accuracy in percent", "readout", columns, lines, note=note)])
