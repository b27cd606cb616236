"""The paper's third table: Colored-MNIST with ERM, IRM and IRM+PFDL, and what is needed to judge them.

All rows of one width see the same data and start from the same weights, restart by restart, so that differences are
paired. The settings of ERM, IRM and V-REx are the published ones, picked by their authors with the test environment in
view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console
from torch import Tensor

from pfdl._internal.files import write_atomically
from pfdl._internal.runs import claim
from pfdl.data.colored_mnist import TRAIN_COLOR_FLIPS, ColoredMNIST, Environment
from pfdl.data.digits import DigitSource, find_digits
from pfdl.experiments.colored_mnist.rows import CANDIDATES, CONTEXT_ROWS, IRM, LITERAL_ROW, PENALTY, Row
from pfdl.experiments.colored_mnist.stacked import StackedMLPs, measure, train_restarts
from pfdl.experiments.grid import run_grid
from pfdl.objectives import make_objective
from pfdl.vision.backbones import MLP

_ALL_CANDIDATES = [row for rows in CANDIDATES.values() for row in rows]
ROWS: dict[str, Row] = {row.key: row for row in (IRM, *CONTEXT_ROWS, *_ALL_CANDIDATES, LITERAL_ROW)}


@dataclass(frozen=True)
class Scale:
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


FULL = Scale()
QUICK = Scale(restarts=3, max_train=10_000, max_hidden=32, feature_rows=128, decomposition_width=16)
"""Minutes on two processor cores. Not the published protocol: fewer rows, narrower networks, fewer restarts."""


def scale_of(*, quick: bool, restarts: int | None = None) -> Scale:
    """The published size or the quick one, with another number of restarts if one is given."""
    scale = QUICK if quick else FULL
    return scale if restarts is None else replace(scale, restarts=restarts)


def tasks(source: DigitSource, scale: Scale) -> list[dict[str, Any]]:
    """One task per row: all its restarts side by side."""
    size = {name: value for name, value in vars(scale).items() if name != "rows"}
    return [{"row": key, "digits": source.name, **size} for key in scale.rows]


def run(
    scale: Scale,
    output: Path,
    *,
    folder: str | None,
    device: str,
    n_jobs: int = 1,
    console: Console | None = None,
    command: str | None = None,
) -> pd.DataFrame:
    """Train all rows that ``output`` does not hold yet, and write ``results.csv``.

    Args:
        scale: How large the experiment is.
        output: The run folder, see :mod:`pfdl._internal.runs`; finished rows are kept in its ``cells``.
        folder: Folder of the MNIST files, or ``None`` for scikit-learn's digits.
        device: Where to compute.
        n_jobs: How many rows at a time, see :func:`pfdl.experiments.grid.run_grid`.
        console: Likewise.
        command: What a user typed to start this, for the record.

    Returns:
        One line per row and restart, see :func:`run_task`.

    Raises:
        ValueError: If the output folder holds another run.
    """
    function = partial(run_task, folder=folder, device=device)
    source = find_digits(folder)
    settings = {"digits": source.name, **asdict(scale), "device": device, "command": command}
    with claim(output, "colored-mnist", settings, may_change=("rows", "device", "command")):
        results = run_grid(function, tasks(source, scale), output / "cells", n_jobs=n_jobs, console=console)
        write_atomically(output / "results.csv", results.to_csv(index=False))
    return results


def run_task(row: str, digits: str, *, folder: str | None, device: str, **scale: Any) -> list[dict[str, Any]]:
    """Train and measure all restarts of one row.

    Args:
        row: Key of the row.
        digits: Name of the digits, by which results on MNIST and on other digits are told apart.
        folder: Folder of the MNIST files, or ``None`` for scikit-learn's digits.
        device: Where to compute.
        **scale: What :class:`Scale` takes, except ``rows``.

    Returns:
        For each restart the accuracies in percent on training rows (both environments), held-out rows and test rows,
        and the risks on held-out rows.
    """
    size = Scale(**scale)
    data = stacked_environments(folder, size, device)
    if data.digits != digits:
        raise ValueError(f"the task is for {digits} but {folder or 'without a folder'} gives {data.digits}.")
    return run_row(_scaled(ROWS[row], size), data, size)


@lru_cache(maxsize=1)
def stacked_environments(folder: str | None, scale: Scale, device: str) -> StackedColoredMNIST:
    """The environments, kept for the next row of the same process."""
    return StackedColoredMNIST(find_digits(folder), scale, device)


class StackedColoredMNIST:
    """The environments of all restarts, stacked: images (R, n, 2, 196), labels (R, n).

    Args:
        source: Grey digits.
        scale: How many restarts, how many rows, from which seed.
        device: Where to put the tensors.
    """

    def __init__(self, source: DigitSource, scale: Scale, device: str) -> None:
        self.digits = source.name
        self.device = device
        self.seeds = [scale.seed + restart for restart in range(scale.restarts)]
        restarts = [ColoredMNIST(source, seed=seed, max_train=scale.max_train) for seed in self.seeds]
        self.train = [self._stack([data.train[e] for data in restarts]) for e in range(2)]
        self.held_out = [self._stack([data.held_out[e] for data in restarts]) for e in range(2)]
        self.test = self._stack([data.test for data in restarts])

    def _stack(self, environments: Sequence[Environment]) -> tuple[Tensor, Tensor]:
        images = torch.stack([environment.images for environment in environments]).flatten(3)
        return images.to(self.device), torch.stack([environment.labels for environment in environments]).to(self.device)


def run_row(row: Row, data: StackedColoredMNIST, scale: Scale) -> list[dict[str, Any]]:
    """Train and measure all restarts of one row on data that is there already; see :func:`run_task`."""

    def inputs(images: Tensor) -> Tensor:
        return images.sum(2) if row.grayscale else images.flatten(2)

    train = inputs(torch.cat([images for images, _ in data.train], dim=1))
    labels = torch.cat([labels for _, labels in data.train], dim=1)
    environments = torch.arange(2, device=data.device).repeat_interleave(train.shape[1] // 2)
    networks, objectives = [], []
    for seed in data.seeds:
        torch.manual_seed(seed)  # the network first: rows of one width then start from the same weights
        networks.append(MLP(train.shape[2], row.plan.hidden))
        objectives.append(
            make_objective(row.objective, row.plan.hidden, **dict[str, Any](row.settings)).to(data.device)
        )
    stacked = StackedMLPs(networks, data.device)
    train_restarts(
        stacked,
        objectives,
        train,
        labels,
        environments,
        row.plan,
        feature_rows=scale.feature_rows,
        row_seed=scale.seed,
    )
    columns: dict[str, Sequence[float]] = {
        "restart_seed": data.seeds,
        "train_accuracy": _percent(measure(stacked, train, labels)[0]),
        "test_accuracy": _percent(measure(stacked, inputs(data.test[0]), data.test[1])[0]),
    }
    for flip, (images, targets) in zip(TRAIN_COLOR_FLIPS, data.held_out, strict=True):
        accuracy, risk = measure(stacked, inputs(images), targets)
        columns[f"held_out_accuracy_{flip}"] = _percent(accuracy)
        columns[f"held_out_risk_{flip}"] = risk
    return [
        {"restart": restart, **dict(zip(columns, values, strict=True))}
        for restart, values in enumerate(zip(*columns.values(), strict=True))
    ]


def _percent(shares: Sequence[float]) -> list[float]:
    return [100 * share for share in shares]


def _scaled(row: Row, scale: Scale) -> Row:
    settings = dict(row.settings)
    if PENALTY in settings:
        settings[PENALTY] = {**settings[PENALTY], "hidden": scale.decomposition_width}
    hidden = min(row.plan.hidden, scale.max_hidden or row.plan.hidden)
    return replace(row, plan=replace(row.plan, hidden=hidden), settings=settings)
