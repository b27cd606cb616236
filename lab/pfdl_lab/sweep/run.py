"""Train every candidate of a sweep, choose one on validation images, and test that one alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from pfdl._internal.files import read_table, write_atomically, write_json
from pfdl._internal.runs import METRICS, claim
from pfdl._internal.workers import HERE, Execution, Task
from pfdl.data import make_split
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource
from pfdl.objectives.examples import make_example
from pfdl.vision.checkpoint import load_model
from pfdl.vision.config import SELECTIONS, TrainingConfig, check_contexts, check_sets
from pfdl.vision.evaluation import evaluate, save_evaluation
from pfdl.vision.resume import shed_state
from pfdl.vision.seeds import accuracy_lines, read_split, save_split
from pfdl.vision.training import train
from pfdl_lab.grid import run_grid, unfinished
from pfdl_lab.images import StoredImages, image_store
from pfdl_lab.statistics import standard_error
from pfdl_lab.sweep.config import SweepConfig, as_settings

FAILED = "failed"
CHOSEN = "chosen.json"
COLUMNS = ("candidate", "seed", "score", "value", "reason")
"""Of ``results.csv``: validation accuracies in percent at the epoch that was kept, and that epoch."""


@dataclass(frozen=True)
class Choice:
    """What a sweep chose, and on what grounds; written to ``chosen.json``.

    Attributes:
        candidate: What tells it from the others.
        settings: All its settings, for :class:`pfdl.vision.training.TrainingConfig`.
        select: The accuracy on validation images that chose it.
        validation: Its mean over the seeds in percent, and the standard error.
        test: For each test its mean accuracy in percent and the standard error; empty where there are no test images.
        folders: The run folders of its trainings, seen from that of the sweep.
    """

    candidate: str
    settings: Mapping[str, Any]
    select: str
    validation: tuple[float, float | None]
    test: Mapping[str, tuple[float, float | None]]
    folders: Sequence[str]


def run(
    config: SweepConfig,
    source: ContextSource,
    output: Path,
    *,
    ratio: str = "5:1",
    execution: Execution = HERE,
) -> tuple[pd.DataFrame, Choice]:
    """Train what is missing, write ``results.csv``, choose, test the chosen candidate, and write ``chosen.json``.

    Test images play no part before the choice, and only the chosen candidate is tested.

    Args:
        config: What is tried, and how one of it is chosen.
        source: The images.
        output: The run folder, with ``splits`` (a manifest per seed), ``runs`` (a run folder per candidate and seed),
            ``cells`` and ``tested`` (finished ones). An interrupted sweep resumes, in the middle of a training too.
        ratio: Proportion of the training set, as in :func:`pfdl.data.make_split`.
        execution: Where the trainings run, and how many at a time.

    Returns:
        One line per candidate, seed and score; and what was chosen.

    Raises:
        ValueError: If a candidate or the images cannot be used, every candidate failed, or the folder holds another
            run; another number of seeds is the same run.
    """
    candidates = config.candidates()
    splits = {
        seed: make_split(source, ratio=ratio, seed=seed)
        for seed in range(config.first_seed, config.first_seed + config.seeds)
    }
    _check(candidates, splits[config.first_seed])
    settings = {**asdict(config), "ratio": ratio, **execution.settings}
    may_change = ("seeds", *execution.settings)
    with claim(output, "sweep", settings, may_change=may_change), image_store(output / "images") as store:
        hashes = {seed: save_split(split, output, seed) for seed, split in splits.items()}
        tasks: list[dict[str, Any]] = [
            {"candidate": name, "settings": as_settings(candidate), "seed": seed, "split": split}
            for seed, split in hashes.items()
            for name, candidate in candidates.items()
        ]

        def grid(function: Any, tasks: Sequence[Task], folder: str) -> pd.DataFrame:
            if unfinished(tasks, output / folder):
                for size in {task["settings"]["image_size"] for task in tasks}:
                    store(source, size, str(size))
            function = partial(function, output=output, device=execution.device)
            return run_grid(function, tasks, output / folder, execution)

        results = grid(train_candidate, tasks, "cells")
        results = results.reindex(columns=[*dict.fromkeys([*COLUMNS, *results.columns])])
        write_atomically(output / "results.csv", results[list(COLUMNS)].to_csv(index=False))
        chosen = choose(results, config.select)
        own = [task for task in tasks if task["candidate"] == chosen]
        tests = pd.DataFrame()
        if "test" in splits[config.first_seed].set_names:
            tests = grid(run_tests, own, "tested")
        for folder in (output / "runs").glob("*/*"):
            shed_state(folder)
        choice = Choice(
            chosen,
            own[0]["settings"],
            config.select,
            _mean(_scores(results, chosen, config.select)),
            {str(test): _mean(part["accuracy"]) for test, part in tests.groupby("test", sort=False)}
            if len(tests)
            else {},
            [_run_folder(Path(), task["settings"], task["seed"], task["split"]).as_posix() for task in own],
        )
        write_json(output / CHOSEN, asdict(choice))
    return results, choice


def choose(results: pd.DataFrame, select: str) -> str:
    """Return the candidate with the highest mean validation score over the seeds; of equals, the first declared.

    Args:
        results: See :func:`run`. A candidate that failed with any seed is out.
        select: The score.

    Raises:
        ValueError: If every candidate failed.
    """
    failed = set(results.loc[results["score"] == FAILED, "candidate"])
    means = {
        str(name): _scores(results, name, select).mean() for name in results["candidate"].unique() if name not in failed
    }
    if not means:
        reasons = results.loc[results["score"] == FAILED, "reason"].iloc[0]
        raise ValueError(f"every candidate of the sweep failed; the first one because {reasons}")
    return max(means, key=means.__getitem__)


def train_candidate(
    candidate: str, settings: Mapping[str, Any], seed: int, split: str, *, output: Path, device: str
) -> list[dict[str, Any]]:
    """Train one candidate with one seed. No test image is read.

    Args:
        candidate: What tells it from the others.
        settings: What :class:`pfdl.vision.training.TrainingConfig` takes, except the seed.
        seed: Of the split and the training.
        split: Hash of the split, which tells results on other images apart.
        output: The run folder of the sweep.
        device: Where to compute.

    Returns:
        Lines of ``score`` and ``value``: the accuracies on validation images in percent at the epoch that was kept, and
        ``epoch``; or ``failed`` with a ``reason``, if training diverged or the settings do not suit the images.
    """
    config = TrainingConfig(**settings, seed=seed)
    source, manifest = _open(output, config, seed)
    folder = _run_folder(output, settings, seed, split)
    try:
        train(config, source, manifest, folder, device=device, devices=1, nodes=1)
    except ValueError as error:
        return [{"score": FAILED, "value": 1.0, "reason": str(error)}]
    logged = read_table(folder / METRICS)
    kept = int(logged[SELECTIONS[config.select]].to_numpy().argmax())
    scores = {score: name for score, name in SELECTIONS.items() if name in logged.columns}
    lines = [{"score": score, "value": 100 * float(logged[name].iloc[kept])} for score, name in scores.items()]
    return [*lines, {"score": "epoch", "value": float(kept + 1)}]


def run_tests(
    candidate: str, settings: Mapping[str, Any], seed: int, split: str, *, output: Path, device: str
) -> list[dict[str, Any]]:
    """Test a trained candidate; the arguments are those of :func:`train_candidate`.

    Returns:
        Lines of ``test`` and ``accuracy`` in percent.
    """
    config = TrainingConfig(**settings, seed=seed)
    source, manifest = _open(output, config, seed)
    folder = _run_folder(output, settings, seed, split)
    result = evaluate(load_model(folder), source, manifest, device=device)
    save_evaluation(folder, result)
    return accuracy_lines(result)


def _check(candidates: Mapping[str, TrainingConfig], manifest: Manifest) -> None:
    """Refuse what cannot be trained or chosen, before anything is."""
    if "validation" not in manifest.set_names:
        raise ValueError("a sweep chooses by validation images, and the images do not suffice to hold any out.")
    for config in candidates.values():
        objective = make_example(config.objective, config.objective_settings)
        check_sets(config, manifest)
        check_contexts(config, objective, manifest)


def _open(output: Path, config: TrainingConfig, seed: int) -> tuple[StoredImages, Manifest]:
    return StoredImages(output / "images" / str(config.image_size)), read_split(output, seed)


def _run_folder(output: Path, settings: Mapping[str, Any], seed: int, split: str) -> Path:
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    return output / "runs" / digest[:12] / f"seed-{seed}-{split[:8]}"


def _scores(results: pd.DataFrame, candidate: str, score: str) -> pd.Series[float]:
    return results.loc[(results["candidate"] == candidate) & (results["score"] == score), "value"]


def _mean(values: pd.Series[float]) -> tuple[float, float | None]:
    return float(values.mean()), standard_error(values) if len(values) > 1 else None
