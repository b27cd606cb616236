"""The paper's third table: Colored-MNIST with ERM, IRM and IRM+PFDL, and what is needed to judge
them.

All rows of one width see the same data and start from the same weights, restart by restart, so that
differences are paired. The settings of ERM, IRM and V-REx are the published ones, picked by their
authors with the test environment in view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from pfdl._internal.files import write_atomically
from pfdl._internal.validation import check_choice
from pfdl.contexts.quality import worst_group_accuracy
from pfdl.objectives import make_objective
from pfdl.runs import claim
from pfdl_lab.colored_mnist.data import (
    StackedColoredMNIST,
    context_tasks,
    draw_environments,
    infer_task,
)
from pfdl_lab.colored_mnist.environments import TRAIN_COLOR_FLIPS, ColoredMNIST
from pfdl_lab.colored_mnist.perceptron import MLP
from pfdl_lab.colored_mnist.rows import PENALTY, ROWS, ColoredMNISTRow
from pfdl_lab.colored_mnist.stacked import StackedMLPs, measure, train_restarts
from pfdl_lab.digits import DigitSource, find_digits
from pfdl_lab.grid import finish, run_grid
from pfdl_lab.progress import report
from pfdl_lab.workers import IN_SEQUENCE, Execution

PICTURE = "environments.png"
WORST_GROUP = "held_out_worst_group"
"""Column of the accuracy in the worst group of held-out rows: one class in one inferred context."""

CHECK_EVERY = 20
"""Updates between two looks at the held-out rows, for rows that choose where to stop."""


@dataclass(frozen=True)
class ColoredMNISTConfig:
    """How large the experiment is.

    Attributes:
        restarts: Number of restarts of each row.
        seed: Seed of the first restart; the others count up from it.
        max_train: Rows of the two training environments together; ``None`` for all.
        max_hidden: Bound on the width of the hidden layers; ``None`` for the published widths.
        feature_rows: Rows per step that PFDL sees.
        decomposition_width: Hidden width of g.
        rows: Keys of the rows of the table.
    """

    restarts: int = 10
    seed: int = 0
    max_train: int | None = None
    max_hidden: int | None = None
    feature_rows: int = 512
    decomposition_width: int = 64
    rows: tuple[str, ...] = tuple(ROWS)

    @property
    def seeds(self) -> list[int]:
        """The seeds of the restarts."""
        return [self.seed + restart for restart in range(self.restarts)]


FULL = ColoredMNISTConfig()
QUICK = ColoredMNISTConfig(
    restarts=3, max_train=10_000, max_hidden=32, feature_rows=128, decomposition_width=16
)
"""Minutes on two processor cores. Not the published protocol: fewer rows, narrower networks, fewer
restarts.
"""


def tasks(source: DigitSource, config: ColoredMNISTConfig) -> list[dict[str, Any]]:
    """Return one task per row: all its restarts side by side."""
    size = {name: value for name, value in asdict(config).items() if name != "rows"}
    return [{"row": key, "digits": source.name, **size} for key in config.rows]


def run(
    config: ColoredMNISTConfig,
    output: Path,
    *,
    folder: str | None,
    execution: Execution = IN_SEQUENCE,
) -> pd.DataFrame:
    """Train all rows that ``output`` does not hold yet, and write ``results.csv``.

    Args:
        config: How large the experiment is.
        output: The run folder, see :mod:`pfdl.runs`; finished rows are kept in its ``cells``.
        folder: Folder of the MNIST files, or ``None`` for scikit-learn's digits.
        execution: Where the rows are trained, and how many at a time.

    Returns:
        One line per row, restart and step, see :func:`run_task`.

    Raises:
        ValueError: If a row is unknown, or the output folder holds another run.
    """
    for row in config.rows:
        check_choice("the row", row, ROWS)
    source = find_digits(folder)
    settings = {"digits": source.name, **asdict(config), **execution.settings}
    with claim(output, "colored-mnist", settings, may_change=("rows", *execution.settings)):
        contexts = None
        if any(ROWS[row].chooses for row in config.rows):
            contexts = output / "contexts"
            restarts = context_tasks(source.name, config.seeds, config.max_train)
            # A GPU plays no part in it
            on_cores = replace(execution, jobs=-1, device="cpu", gpus_per_task=None)
            run_grid(partial(infer_task, folder=folder), restarts, contexts, on_cores)
        function = partial(run_task, folder=folder, device=execution.device, contexts=contexts)
        results = run_grid(function, tasks(source, config), output / "cells", execution)
        finish(results, output, "contexts", "cells")
        first = ColoredMNIST(source, seed=config.seed, max_train=config.max_train)
        write_atomically(output / PICTURE, draw_environments(first))
    return results


def run_task(
    row: str,
    digits: str,
    *,
    folder: str | None,
    device: str,
    contexts: Path | None = None,
    **config: Any,
) -> list[dict[str, Any]]:
    """Train and measure all restarts of one row.

    Args:
        row: Key of the row.
        digits: Name of the digits, which tells results on MNIST and on other digits apart.
        folder: Folder of the MNIST files, or ``None`` for scikit-learn's digits.
        device: Where to compute.
        contexts: Folder of the inferred contexts, for rows that need them.
        **config: What :class:`ColoredMNISTConfig` takes, except ``rows``.

    Returns:
        For each restart, and each ``step`` that was looked at, the accuracies in percent on
        training rows (both environments), held-out rows and test rows, and the risks on held-out
        rows. Rows that choose also have the accuracy of the worst inferred group on held-out rows.
    """
    size = ColoredMNISTConfig(**config)
    data = stacked_environments(folder, size, device, contexts if ROWS[row].chooses else None)
    if data.digits != digits:
        raise ValueError(
            f"the task is for {digits} but {folder or 'without a folder'} gives {data.digits}."
        )
    return run_row(_scaled(ROWS[row], size), data, size)


@lru_cache(maxsize=1)
def stacked_environments(
    folder: str | None, config: ColoredMNISTConfig, device: str, contexts: Path | None = None
) -> StackedColoredMNIST:
    """Return the environments, kept for the next row of the same process."""
    return StackedColoredMNIST(
        find_digits(folder), config.seeds, config.max_train, device, contexts
    )


def run_row(
    row: ColoredMNISTRow, data: StackedColoredMNIST, config: ColoredMNISTConfig
) -> list[dict[str, Any]]:
    """Train and measure all restarts of one row on data that is there already; see
    :func:`run_task`.
    """

    def inputs(images: Tensor) -> Tensor:
        return images.sum(2) if row.grayscale else images.flatten(2)

    train = inputs(torch.cat([images for images, _ in data.train], dim=1))
    labels = torch.cat([labels for _, labels in data.train], dim=1)
    environments = _environments(row, data, train.shape[1])
    networks = []
    objectives = []
    for seed in data.seeds:
        # The network first: rows of one width then start from the same weights
        torch.manual_seed(seed)
        networks.append(MLP(train.shape[2], row.config.hidden))
        settings = dict[str, Any](row.settings)
        objective = make_objective(
            row.objective, row.config.hidden, num_classes=2, num_contexts=None, **settings
        )
        objectives.append(objective.to(data.device))
    stacked = StackedMLPs(networks, data.device)
    lines: list[dict[str, Any]] = []

    def look(step: int) -> None:
        columns: dict[str, Sequence[float]] = {
            "restart_seed": data.seeds,
            "train_accuracy": _percent(measure(stacked, train, labels)[0]),
            "test_accuracy": _percent(measure(stacked, inputs(data.test[0]), data.test[1])[0]),
        }
        for flip, (images, targets) in zip(TRAIN_COLOR_FLIPS, data.held_out, strict=True):
            accuracy, risk = measure(stacked, inputs(images), targets)
            columns[f"held_out_accuracy_{flip}"] = _percent(accuracy)
            columns[f"held_out_risk_{flip}"] = risk
        if row.chooses:
            columns[WORST_GROUP] = _percent(_worst_groups(stacked, data, inputs))
        for restart, values in enumerate(zip(*columns.values(), strict=True)):
            lines.append(
                {"restart": restart, "step": step, **dict(zip(columns, values, strict=True))}
            )

    def after_step(step: int) -> None:
        report(step, row.config.steps - 1)
        if row.chooses and step % CHECK_EVERY == 0 and step < row.config.steps - 1:
            look(step)

    report(0, row.config.steps - 1, f"{row.title}, steps")
    train_restarts(
        stacked,
        objectives,
        train,
        labels,
        environments,
        row.config,
        feature_rows=config.feature_rows,
        row_seed=config.seed,
        after_step=after_step,
    )
    look(row.config.steps - 1)
    return lines


def _environments(row: ColoredMNISTRow, data: StackedColoredMNIST, rows: int) -> Tensor:
    """Return what the objective knows of each training row: its environment, or its inferred
    context.
    """
    if row.chooses and not data.has_contexts:
        raise ValueError(f"the row {row.key!r} needs inferred contexts, and there are none.")
    if row.contexts == "inferred":
        return data.train_contexts
    return (
        torch.arange(2, device=data.device)
        .repeat_interleave(rows // 2)
        .expand(len(data.seeds), rows)
    )


@torch.no_grad()
def _worst_groups(stacked: StackedMLPs, data: StackedColoredMNIST, inputs: Any) -> list[float]:
    """Return the accuracy of each restart in its worst group of held-out rows: one class in one
    inferred context.
    """
    images, labels = (torch.cat(parts, dim=1) for parts in zip(*data.held_out, strict=True))
    answers = (stacked(inputs(images)).logits > 0).long()
    return [
        worst_group_accuracy(*one)
        for one in zip(answers, labels.long(), data.held_out_contexts, strict=True)
    ]


def _percent(shares: Sequence[float]) -> list[float]:
    return [100 * share for share in shares]


def _scaled(row: ColoredMNISTRow, config: ColoredMNISTConfig) -> ColoredMNISTRow:
    settings = dict(row.settings)
    if PENALTY in settings:
        settings[PENALTY] = {**settings[PENALTY], "hidden": config.decomposition_width}
    hidden = min(row.config.hidden, config.max_hidden or row.config.hidden)
    return replace(row, config=replace(row.config, hidden=hidden), settings=settings)
