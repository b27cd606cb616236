"""The study of images: does PFDL help, where, and what helps more? Many small trainings on paired seeds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console
from sklearn.metrics import normalized_mutual_info_score
from torch import Tensor

from pfdl._internal.files import write_atomically
from pfdl._internal.runs import claim
from pfdl._internal.validation import check_choice, check_count
from pfdl.contexts.inference import infer_contexts
from pfdl.data.context_images import HIDDEN_CONTEXT
from pfdl.experiments.grid import run_grid
from pfdl.experiments.study.data import Arena, Round
from pfdl.experiments.study.rows import ENTRIES, INFERRED, KNOWN, ONE
from pfdl.experiments.study.training import Contest, compete

ESS, NUMBER, AGREEMENT = "effective sample size", "contexts found", "agreement with true contexts"
DIVERGED = "diverged"
""""Tests" that are no accuracies."""

COLUMNS = ("arena", "row", "seed", "test", "value")
"""Of ``results.csv``."""


@dataclass(frozen=True)
class Scale:
    """How large the study is.

    Args:
        rows: Keys of ``ENTRIES``.
        seeds: Paired repetitions.
        first_seed: The first of them; what was tried while a method was made should have others.
        epochs: Passes over the training samples.
        learning_rate: Of SGD.
    """

    rows: tuple[str, ...]
    seeds: int = 10
    first_seed: int = 0
    epochs: int = 30
    learning_rate: float = 0.01


def run(
    scale: Scale,
    arenas: Sequence[Arena],
    output: Path,
    *,
    device: str = "cpu",
    n_jobs: int = 1,
    console: Console | None = None,
    command: str | None = None,
) -> pd.DataFrame:
    """Train and test what is missing, and write ``results.csv``.

    Args:
        scale: How large the study is.
        arenas: The data sets.
        output: The run folder, with ``cells`` (finished trainings) and ``results.csv``.
        device: Where to compute.
        n_jobs: Trainings at a time, see :func:`pfdl.experiments.grid.run_grid`.
        console: Likewise.
        command: What a user typed to start this, for the record.

    Returns:
        One line per data set, row, seed and test, see :func:`run_task`.

    Raises:
        ValueError: If a row or data set cannot be used, or the folder holds another run.
    """
    for row in scale.rows:
        check_choice("the row", row, ENTRIES)
    check_count("seeds", scale.seeds, 2)
    how = {name: value for name, value in asdict(scale).items() if name not in ("rows", "seeds", "first_seed")}
    tasks = [
        {**asdict(arena), "row": row, "seed": seed, **how}
        for seed in range(scale.first_seed, scale.first_seed + scale.seeds)
        for arena in arenas
        for row in scale.rows
    ]
    settings = {**asdict(scale), "arenas": [asdict(arena) for arena in arenas], "device": device, "command": command}
    may_change = ("rows", "seeds", "first_seed", "arenas", "device", "command")
    function = partial(run_task, device=device)
    with claim(output, "study", settings, may_change=may_change):
        results = run_grid(function, tasks, output / "cells", n_jobs=n_jobs, console=console)
        write_atomically(output / "results.csv", results[list(COLUMNS)].to_csv(index=False))
    return results


def run_task(
    row: str, seed: int, *, device: str, epochs: int, learning_rate: float, **arena: Any
) -> list[dict[str, Any]]:
    """Train one row with one seed and test it.

    Args:
        row: Key of the entry.
        seed: Of the split, the first weights and all that training draws.
        device: Where to compute.
        epochs: See :class:`Scale`.
        learning_rate: Likewise.
        **arena: What :class:`pfdl.experiments.study.data.Arena` takes.

    Returns:
        Lines of ``arena`` (its name), ``test`` and ``value``: accuracy in percent by test set, the effective sample
        size of the last batch as a part of it, where training diverged a 1 for that, and, where contexts were
        inferred, their number and their normalised mutual information with the true ones.
    """
    entry = ENTRIES[row]
    place = Arena(**arena)
    game = place.round(seed)
    environments = _environments(entry.environments, game, seed)
    contest = Contest(
        objective=entry.objective,
        settings=entry.settings,
        layer=entry.layer,
        class_centred=entry.class_centred,
        epochs=epochs,
        batch_size=entry.batch_size,
        learning_rate=learning_rate,
        seed=seed,
    )
    _repeatable(device)
    torch.manual_seed(seed)
    model = game.make_model(entry.width)
    outcome = compete(contest, model, game.train, environments, game.tests, device=device)
    values = {**outcome.accuracy, ESS: outcome.effective_sample_size}
    if outcome.diverged:
        values[DIVERGED] = 1.0
    if entry.environments == INFERRED:
        values[NUMBER] = len(set(environments.tolist()))
        values[AGREEMENT] = float(normalized_mutual_info_score(game.train.contexts, environments))
    return [{"arena": place.name, "test": test, "value": value} for test, value in values.items()]


def _environments(told: str, game: Round, seed: int) -> Tensor:
    """What the objective is told of the contexts."""
    if told == INFERRED:
        return torch.from_numpy(infer_contexts(game.scenery(), game.train.labels, seed=seed))
    if told == KNOWN:
        return game.train.contexts
    return torch.full_like(game.train.labels, 0 if told == ONE else HIDDEN_CONTEXT)


def _repeatable(device: str) -> None:
    """Let a GPU add in a fixed order: methods that do the same on a data set shall have the same result there."""
    if device != "cpu":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
