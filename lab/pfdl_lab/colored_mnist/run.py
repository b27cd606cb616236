"""The paper's third table: Colored-MNIST with ERM, IRM and IRM+PFDL, and what is needed to judge
them.

All rows of one width see the same data and start from the same weights, restart by restart, so that
differences are paired. The settings of ERM, IRM and V-REx are the published ones, picked by their
authors with the test environment in view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from pfdl._internal.validation import check_choice
from pfdl.contexts import image_statistics, infer_contexts, worst_group_accuracy
from pfdl.objectives import make_objective
from pfdl.runs import claim
from pfdl_lab.colored_mnist.environments import TRAIN_COLOR_FLIPS, ColoredMNIST, Environment
from pfdl_lab.colored_mnist.perceptron import MLP
from pfdl_lab.colored_mnist.rows import PENALTY, ROWS, ColoredMNISTRow
from pfdl_lab.colored_mnist.training import measure, train
from pfdl_lab.digits import find_digits
from pfdl_lab.grid import finish, run_grid
from pfdl_lab.progress import report
from pfdl_lab.workers import IN_SEQUENCE, Execution

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

    def tasks(self, digits: str) -> list[dict[str, Any]]:
        """Return one task per restart and row."""
        size = asdict(self)
        for name in ("rows", "restarts", "seed"):
            del size[name]
        restarts = product(range(self.restarts), self.rows)
        return [
            {
                "row": row,
                "digits": digits,
                "restart": restart,
                "restart_seed": self.seed + restart,
                **size,
            }
            for restart, row in restarts
        ]


FULL = ColoredMNISTConfig()
QUICK = ColoredMNISTConfig(
    restarts=3, max_train=10_000, max_hidden=32, feature_rows=128, decomposition_width=16
)
"""Minutes on two processor cores. Not the published protocol: fewer rows, narrower networks, fewer
restarts.
"""


def run(
    config: ColoredMNISTConfig,
    output: Path,
    *,
    folder: Path | None,
    execution: Execution = IN_SEQUENCE,
) -> pd.DataFrame:
    """Train what ``output`` does not hold yet, and write ``results.csv``.

    Args:
        config: How large the experiment is.
        output: The run folder, see :mod:`pfdl.runs`; finished trainings are kept in its ``cells``.
        folder: Folder of the MNIST files, or ``None`` for scikit-learn's digits.
        execution: Where the restarts are trained, and how many at a time.

    Returns:
        One line per row, restart and step, see :func:`run_task`.

    Raises:
        ValueError: If a row is unknown, or the output folder holds another run.
    """
    for row in config.rows:
        check_choice("the row", row, ROWS)
    digits = find_digits(folder).name
    tasks = config.tasks(digits)
    seeds = sorted({task["restart_seed"] for task in tasks if ROWS[task["row"]].chooses})
    settings = {"digits": digits, **asdict(config), **execution.settings}
    may_change = ("rows", "restarts", *execution.settings)
    with claim(output, "colored-mnist", settings, may_change=may_change):
        known = {"digits": digits, "max_train": config.max_train}
        restarts = [{**known, "seed": seed} for seed in seeds]
        # A GPU plays no part in it
        on_cores = replace(execution, jobs=-1, device="cpu", gpus_per_task=None)
        infer = partial(infer_task, folder=folder)
        found = run_grid(infer, restarts, output / "contexts", on_cores).get("contexts", ())
        contexts = dict(zip(seeds, map(torch.tensor, found), strict=True))
        function = partial(run_task, folder=folder, device=execution.device, contexts=contexts)
        results = run_grid(function, tasks, output / "cells", execution)
        finish(results, output, "contexts", "cells")
    return results


def infer_task(
    digits: str, seed: int, max_train: int | None, *, folder: Path | None
) -> list[dict[str, Any]]:
    """Infer the contexts of the training rows and, after them, the held-out rows of a restart; not
    of test rows.
    """
    data = open_environments(folder, seed, max_train)
    images, labels = _joined(*data.train, *data.held_out)
    found = infer_contexts(image_statistics(images), labels.long(), seed=seed)
    return [{"contexts": found.tolist()}]


@lru_cache(maxsize=1)
def open_environments(folder: Path | None, seed: int, max_train: int | None) -> ColoredMNIST:
    """Return the environments of a restart, kept for the next row of the same process."""
    return ColoredMNIST(folder, seed=seed, max_train=max_train)


def run_task(
    row: str,
    digits: str,
    restart_seed: int,
    max_train: int | None,
    *,
    folder: Path | None,
    device: str,
    contexts: Mapping[int, Tensor],
    **size: Any,
) -> list[dict[str, Any]]:
    """Train and measure one restart of one row.

    Args:
        row: Key of the row.
        digits: Name of the digits, which tells results on MNIST and on other digits apart.
        restart_seed: Seed of the environments, the first weights and the rows that PFDL sees.
        max_train: See :class:`ColoredMNISTConfig`.
        folder: Folder of the MNIST files, or ``None`` for scikit-learn's digits.
        device: Where to compute.
        contexts: What :func:`infer_task` found, by the seed, for rows that need it.
        **size: What else :class:`ColoredMNISTConfig` says.

    Returns:
        For each ``step`` that was looked at, the accuracies in percent on training rows (both
        environments), held-out rows and test rows, and the risks on held-out rows. Rows that choose
        also have the accuracy of the worst inferred group on held-out rows.
    """
    data = open_environments(folder, restart_seed, max_train)
    if data.source.name != digits:
        raise ValueError(
            f"the task is for {digits} but {folder or 'without a folder'} gives {data.source.name}."
        )
    scaled = _scaled(ROWS[row], size["max_hidden"], size["decomposition_width"])
    return train_row(
        scaled,
        data,
        restart_seed,
        feature_rows=size["feature_rows"],
        device=device,
        contexts=contexts.get(restart_seed),
    )


def train_row(
    row: ColoredMNISTRow,
    data: ColoredMNIST,
    seed: int,
    *,
    feature_rows: int,
    device: str = "cpu",
    contexts: Tensor | None = None,
) -> list[dict[str, Any]]:
    """Train and measure a row on environments that are there already; see :func:`run_task`."""

    def seen(*environments: Environment) -> tuple[Tensor, Tensor]:
        """Return what the row sees of images, flat, and their labels."""
        images, labels = _joined(*environments)
        inputs = images.sum(1) if row.grayscale else images
        return inputs.flatten(1).to(device), labels.to(device)

    inputs, labels = seen(*data.train)
    held_out = seen(*data.held_out)
    parts = {"train": (inputs, labels), "test": seen(data.test)}
    by_flip = dict(zip(TRAIN_COLOR_FLIPS, map(seen, data.held_out), strict=True))
    environments = torch.arange(2).repeat_interleave(len(labels) // 2)
    judged = torch.empty(0)
    if row.chooses:
        if contexts is None:
            raise ValueError(f"the row {row.title!r} needs inferred contexts, and there are none.")
        found, judged = contexts.tensor_split([len(labels)])
        environments = found if row.contexts == "inferred" else environments
    # The network first: rows of one width then start from the same weights
    torch.manual_seed(seed)
    network = MLP(inputs.shape[1], row.config.hidden).to(device)
    settings = dict[str, Any](row.settings)
    objective = make_objective(
        row.objective, row.config.hidden, num_classes=2, num_contexts=None, **settings
    ).to(device)
    lines: list[dict[str, Any]] = []

    @torch.no_grad()
    def look(step: int) -> None:
        line: dict[str, float] = {"step": step}
        line |= {f"{name}_accuracy": measure(network, *part)[0] for name, part in parts.items()}
        for flip, part in by_flip.items():
            line[f"held_out_accuracy_{flip}"], line[f"held_out_risk_{flip}"] = measure(
                network, *part
            )
        if row.chooses:
            answers = (network(held_out[0]).logits > 0).long().cpu()
            line[WORST_GROUP] = 100 * worst_group_accuracy(
                answers, held_out[1].long().cpu(), judged
            )
        lines.append(line)

    def after_step(step: int) -> None:
        report(step, row.config.steps - 1)
        if row.chooses and step % CHECK_EVERY == 0 and step < row.config.steps - 1:
            look(step)

    report(0, row.config.steps - 1, f"{row.title}, seed {seed}, steps")
    train(
        network,
        objective,
        inputs,
        labels,
        environments.to(device),
        row.config,
        feature_rows=feature_rows,
        row_seed=seed,
        after_step=after_step,
    )
    look(row.config.steps - 1)
    return lines


def _joined(*environments: Environment) -> tuple[Tensor, Tensor]:
    """Return the images and labels of environments as one."""
    images = [environment.images for environment in environments]
    return torch.cat(images), torch.cat([environment.labels for environment in environments])


def _scaled(row: ColoredMNISTRow, max_hidden: int | None, width: int) -> ColoredMNISTRow:
    """Return a row in networks of a bounded size, with a g of that width."""
    settings = dict(row.settings)
    if PENALTY in settings:
        settings[PENALTY] = {**settings[PENALTY], "hidden": width}
    hidden = min(row.config.hidden, max_hidden or row.config.hidden)
    return replace(row, config=replace(row.config, hidden=hidden), settings=settings)
