"""Try settings of ``pfdl train`` on Optuna, choose one by validation images, and test that one alone."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import optuna
import pandas as pd
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import WilcoxonPruner
from optuna.samplers import TPESampler
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial, TrialState
from rich.console import Console

from pfdl._internal.files import write_atomically, write_json
from pfdl._internal.progress import progress_bar
from pfdl._internal.runs import claim
from pfdl._internal.validation import check_choice, check_count
from pfdl._internal.workers import run_tasks
from pfdl.data import make_split, read_manifest
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource
from pfdl.data.stored import StoredImages, store_images
from pfdl.objectives import make_objective
from pfdl.vision.checkpoint import load_model
from pfdl.vision.config import SELECTIONS, TrainingConfig, check_contexts, check_sets
from pfdl.vision.evaluation import evaluate, read_kept_epoch, save_evaluation
from pfdl.vision.training import train

STUDY, SPLIT, CHOSEN, FAILED = "study.log", "splits/seed-{}.csv", "chosen.json", "failed"
LEAVE_OUT = "leave-one-context-out"
"""The selection by the accuracy on images of a context that was not trained on, mean over all known contexts."""
COLUMNS = ("candidate", "seed", "score", "value", "reason")
"""Of ``results.csv``: validation accuracies in percent at the epoch that was kept, and that epoch."""


class Range(NamedTuple):
    """Values between two numbers; on a logarithmic scale where the upper is ten times the lower or more."""

    low: float
    high: float


@dataclass(frozen=True)
class SweepConfig:
    """What is tried and how one candidate is chosen, all of it declared before anything is trained.

    A candidate that is behind on the first seeds beyond chance (Wilcoxon's test on paired seeds, see
    :class:`optuna.pruners.WilcoxonPruner`) is not trained on the others.

    Args:
        space: For each setting the values to try, or a :class:`Range`: a field of
            :class:`pfdl.vision.config.TrainingConfig`, or a setting of a part of the objective such as
            ``"pfdl.weight"``, which counts where the objective has that part. Other settings have their defaults.
        select: Which accuracy on validation images chooses, both the epoch of a training and the candidate:
            ``"accuracy"``, ``"worst-class"`` or ``"worst-group"``. ``"leave-one-context-out"`` trains a candidate once
            for each context of the training images, without it, and chooses by the mean accuracy on the context left
            out; plain accuracy on the others chooses the epoch. The chosen candidate is then trained on all contexts.
        seeds: Trainings of each candidate, on paired seeds.
        first_seed: The first of them.
        trials: How many candidates Optuna's TPE sampler proposes; None tries every combination, which ranges forbid.

    Raises:
        ValueError: If a value cannot be used.
    """

    space: Mapping[str, Sequence[Any] | Range]
    select: str = "accuracy"
    seeds: int = 3
    first_seed: int = 0
    trials: int | None = None

    def __post_init__(self) -> None:
        check_choice("select", self.select, (*SELECTIONS, LEAVE_OUT))
        check_count("seeds", self.seeds, 1)
        check_count("first_seed", self.first_seed, 0)
        ranges = [name for name, values in self.space.items() if isinstance(values, Range)]
        if self.trials is not None:
            check_count("trials", self.trials, 1)
        if "image_size" in ranges:
            raise ValueError("image_size is a range; name its values, each of which the images are decoded to once.")
        if ranges and self.trials is None:
            raise ValueError(f"{ranges[0]} is a range, which has no end of values; say how many to try by trials.")

    @property
    def number(self) -> int:
        """How many candidates are tried."""
        return self.trials or len(self.combinations())

    def combinations(self) -> dict[str, dict[str, Any]]:
        """Return every combination of values once, by what tells it from the others; none where trials are proposed."""
        found: dict[str, dict[str, Any]] = {}
        for values in product(*self.space.values()) if self.trials is None else ():
            chosen = dict(zip(self.space, values, strict=True))
            found.setdefault(self.candidate(chosen)[0], chosen)  # a setting may not count in some of them
        return found

    def candidate(self, values: Mapping[str, Any]) -> tuple[str, TrainingConfig]:
        """Return what tells a candidate from the others, such as ``"objective=pfdl, epochs=5"``, and its config."""
        parts = str(values.get("objective", TrainingConfig.objective)).split("+")
        plain: dict[str, Any] = {"select": "accuracy" if self.select == LEAVE_OUT else self.select}
        of_parts: dict[str, dict[str, Any]] = {}
        varied = []
        for name, value in values.items():
            part, dot, setting = name.partition(".")
            if dot and part not in parts:
                continue
            (of_parts.setdefault(part, {}) if dot else plain)[setting or name] = value
            if len(self.space[name]) > 1:
                varied.append(f"{name}={value if isinstance(value, str) else json.dumps(value)}")
        label = ", ".join(varied) or "as given"
        return label, TrainingConfig(**plain, objective_settings=of_parts, seed=self.first_seed)


@dataclass(frozen=True)
class Choice:
    """What a sweep chose, and on what grounds; written to ``chosen.json``.

    Attributes:
        candidate: What tells it from the others.
        settings: All its settings, for :class:`pfdl.vision.config.TrainingConfig`.
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


def sweep(
    config: SweepConfig,
    source: ContextSource,
    output: Path,
    *,
    ratio: str = "natural",
    device: str = "cpu",
    jobs: int = 1,
    console: Console | None = None,
    command: str | None = None,
) -> tuple[pd.DataFrame, Choice]:
    """Train what is missing, write ``results.csv``, choose, test the chosen candidate, and write ``chosen.json``.

    Test images play no part before the choice, and only the chosen candidate is tested. An interrupted sweep resumes,
    in the middle of a training too.

    Args:
        config: What is tried, and how one candidate is chosen.
        source: The images.
        output: The run folder, with ``study.log`` (Optuna's journal), ``splits`` (a manifest per seed) and ``runs`` (a
            run folder per candidate and seed).
        ratio: Proportion of the training set, as in :func:`pfdl.data.make_split`.
        device: Where to compute.
        jobs: How many candidates are trained at a time, in processes that share the cores of this machine; −1 for one
            on each core.
        console: Where to show progress; None for nowhere.
        command: What a user typed to start this, for the record.

    Returns:
        One line per candidate, seed and score; and what was chosen.

    Raises:
        ValueError: If a candidate or the images cannot be used, every candidate failed, or the folder holds another
            run; more trials are the same run.
    """
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    splits = {seed: make_split(source, ratio=ratio, seed=seed) for seed in seeds}
    combinations = config.combinations()
    for values in combinations.values():
        _check(config.candidate(values)[1], splits[config.first_seed])
    if config.select == LEAVE_OUT and len(_contexts(splits[config.first_seed])) < 2:
        raise ValueError(f"select is {LEAVE_OUT!r}, and the training images are not of several known contexts.")
    settings = {**asdict(config), "ratio": ratio, "device": device, "command": command}
    with claim(output, "sweep", settings, may_change=("trials", "device", "command")):
        for seed, split in splits.items():
            split.save(output / SPLIT.format(seed))
        study = _open_study(output)
        if not study.get_trials(deepcopy=False):
            for values in combinations.values():
                study.enqueue_trial({name: json.dumps(value) for name, value in values.items()})
        _put_back(study)
        if _is_waiting(study, config):
            for size in map(int, config.space.get("image_size", (TrainingConfig.image_size,))):
                with progress_bar(f"decoding images, {size} pixels", console) as show:
                    store_images(source, output / "images" / str(size), size, on_progress=show)
            work = partial(_work, output=output, config=config, device=device, shows=console is not None)
            at_once = min(config.number, joblib.effective_n_jobs(jobs))
            tasks = [{"worker": number} for number in range(at_once)]
            for _ in run_tasks(work, tasks, at_once, threads=max(1, joblib.cpu_count() // at_once)):
                pass
        done = _finish(study, config, splits, source, output, device)
        shutil.rmtree(output / "images", ignore_errors=True)
    return done


def _open_study(output: Path) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # the pruner's interface may change
        pruner = WilcoxonPruner()
    return optuna.create_study(
        storage=optuna.storages.JournalStorage(JournalFileBackend(str(output / STUDY))),
        study_name="sweep",
        direction="maximize",
        pruner=pruner,
        load_if_exists=True,
    )


def _put_back(study: optuna.Study) -> None:
    """Let the candidates whose process was killed be trained by another; what was trained of them is kept."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)


def _work(worker: int, *, output: Path, config: SweepConfig, device: str, shows: bool) -> None:
    """Train candidates until none is left."""
    study = _open_study(output)
    # One that was started again, or beside others, must not propose what was proposed already.
    study.sampler = TPESampler(seed=config.first_seed + 1000 * worker + len(study.get_trials(deepcopy=False)))
    while _is_waiting(study, config):
        _train_trial(study, config, output, device, study.ask(), shows)


def _is_waiting(study: optuna.Study, config: SweepConfig) -> bool:
    """Return whether a candidate has not begun yet."""
    states = [trial.state for trial in study.get_trials(deepcopy=False)]
    return TrialState.WAITING in states or len(states) < config.number


def _train_trial(
    study: optuna.Study, config: SweepConfig, output: Path, device: str, trial: Trial, shows: bool
) -> None:
    """Train one candidate on seed after seed. No test image is read."""
    values = {name: _suggest(trial, name, choices) for name, choices in config.space.items()}
    label, training = config.candidate(values)
    trial.set_user_attr("candidate", label)
    trial.set_user_attr("settings", _as_settings(training))
    scores: list[dict[str, float]] = []
    for seed in range(config.first_seed, config.first_seed + config.seeds):
        try:
            found = _validated(replace(training, seed=seed), config.select, output, device)
        except ValueError as error:
            trial.set_user_attr("reason", str(error))
            study.tell(trial, state=TrialState.FAIL)
            return
        scores.append(found)
        if shows:
            done = f"candidate {trial.number + 1} of {config.number}, seed {seed}"
            score = f"{config.select} {found[config.select]:.1f} %"
            print(f"{done}: {score} ({label})", file=sys.stderr, flush=True)
        trial.set_user_attr("scores", scores)
        trial.report(found[config.select], seed)
        if len(scores) < config.seeds and trial.should_prune():
            study.tell(trial, state=TrialState.PRUNED)
            return
    study.tell(trial, sum(one[config.select] for one in scores) / len(scores))


def _validated(config: TrainingConfig, select: str, output: Path, device: str) -> dict[str, float]:
    """Train, and return the accuracies in percent that may choose, those at the epoch that was kept, and that epoch."""
    split = read_manifest(output / SPLIT.format(config.seed))
    source = StoredImages(output / "images" / str(config.image_size))
    folder = output / run_folder(config)
    if select == LEAVE_OUT:
        found: dict[str, float] = {}
        for number, context in enumerate(_contexts(split)):
            part, place = _leave_out(split, context), folder.with_name(f"{folder.name}-without-{number}")
            train(config, source, part, place, device=device, devices=1)
            found[f"without {context}"] = 100 * evaluate(load_model(place), source, part, device=device).overall
        return {LEAVE_OUT: sum(found.values()) / len(found), **found}
    train(config, source, split, folder, device=device, devices=1)
    kept = read_kept_epoch(folder, config.select)
    scores = {score: 100 * kept[name] for score, name in SELECTIONS.items() if name in kept}
    return {**scores, "epoch": kept["epoch"] + 1.0}


def _contexts(split: Manifest) -> list[str]:
    return sorted({row.context for row in split.rows_of("train") if row.context})


def _leave_out(split: Manifest, context: str) -> Manifest:
    """Return a split that tests on a context that it does not train on; the test images of the whole are not in it."""
    seen = [row for row in split.rows if {"train", "validation"} & set(row.sets)]
    rows = [row._replace(side="test", sets=("test",)) if row.context == context else row for row in seen]
    return Manifest(tuple(rows), split.parameters)


def run_folder(config: TrainingConfig) -> Path:
    """Return where a training lies in the folder of a sweep."""
    digest = hashlib.sha256(json.dumps(_as_settings(config), sort_keys=True).encode()).hexdigest()
    return Path("runs") / digest[:12] / f"seed-{config.seed}"


def _finish(
    study: optuna.Study,
    config: SweepConfig,
    splits: Mapping[int, Manifest],
    source: ContextSource,
    output: Path,
    device: str,
) -> tuple[pd.DataFrame, Choice]:
    """Write the results, choose, test what was chosen, and write the choice."""
    results = _results(study, config)
    write_atomically(output / "results.csv", results.to_csv(index=False))
    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not completed:
        reasons = [trial.user_attrs["reason"] for trial in study.trials if "reason" in trial.user_attrs]
        raise ValueError(f"every candidate of the sweep failed; the first one because {reasons[0]}")
    best = max(completed, key=lambda trial: float(trial.value or 0.0))  # of equals the first
    training = TrainingConfig(**best.user_attrs["settings"])
    folders = {seed: run_folder(replace(training, seed=seed)) for seed in splits}
    tests = []
    for seed, split in splits.items():
        if config.select == LEAVE_OUT:  # until now each training was without one of the contexts
            train(replace(training, seed=seed), source, split, output / folders[seed], device=device, devices=1)
        if "test" in split.set_names:
            model = load_model(output / folders[seed])
            result = evaluate(model, source, split, device=device)
            save_evaluation(output / folders[seed], result)
            tests += result.lines()
    by_test = pd.DataFrame(tests, columns=["test", "accuracy"]).groupby("test", sort=False)["accuracy"]
    choice = Choice(
        best.user_attrs["candidate"],
        best.user_attrs["settings"],
        config.select,
        _mean(pd.Series([scores[config.select] for scores in best.user_attrs["scores"]])),
        {str(test): _mean(values) for test, values in by_test},
        [folder.as_posix() for folder in folders.values()],
    )
    write_json(output / CHOSEN, asdict(choice))
    return results, choice


def _results(study: optuna.Study, config: SweepConfig) -> pd.DataFrame:
    lines: list[tuple[Any, ...]] = []
    for trial in study.get_trials(deepcopy=False):
        told = trial.user_attrs
        if "candidate" not in told:
            continue
        for seed, scores in enumerate(told.get("scores", []), start=config.first_seed):
            lines += [(told["candidate"], seed, score, value, None) for score, value in scores.items()]
        if trial.state is TrialState.FAIL:
            lines.append((told["candidate"], None, FAILED, 1.0, told.get("reason")))
    return pd.DataFrame(lines, columns=list(COLUMNS)).drop_duplicates(list(COLUMNS[:3]), ignore_index=True)


def _check(config: TrainingConfig, manifest: Manifest) -> None:
    """Refuse what cannot be trained or chosen, before anything is."""
    if "validation" not in manifest.set_names:
        raise ValueError("a sweep chooses by validation images, and the images do not suffice to hold any out.")
    check_sets(config, manifest)
    objective = make_objective(config.objective, 2, num_classes=2, num_contexts=2, **config.objective_settings)
    check_contexts(config, objective, manifest)


def _suggest(trial: Trial, name: str, values: Sequence[Any] | Range) -> Any:
    """Return the value of a trial; choices are kept as text, because lists are no choices for Optuna."""
    if not isinstance(values, Range):
        return json.loads(trial.suggest_categorical(name, [json.dumps(value) for value in values]))
    low, high = values
    log = 0 < low <= high / 10
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=log)
    return trial.suggest_float(name, low, high, log=log)


def _as_settings(config: TrainingConfig) -> dict[str, Any]:
    """Return a config without its seed, as what JSON can hold."""
    settings: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    del settings["seed"]
    return settings


def _mean(values: pd.Series[float]) -> tuple[float, float | None]:
    return float(values.mean()), float(values.std() / len(values) ** 0.5) if len(values) > 1 else None
