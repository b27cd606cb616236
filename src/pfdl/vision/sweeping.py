"""Try settings of ``pfdl train`` on Optuna, choose one by validation images, and test that one
alone.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import joblib
import optuna
import pandas as pd
from optuna.distributions import BaseDistribution, CategoricalDistribution, distribution_to_json
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import WilcoxonPruner
from optuna.samplers import TPESampler
from optuna.trial import TrialState
from rich.console import Console

from pfdl._internal.files import write_atomically, write_json
from pfdl._internal.progress import progress_bar
from pfdl._internal.text import printable
from pfdl._internal.validation import check_choice, check_count
from pfdl._internal.workers import run_tasks, share_of_threads
from pfdl.data import make_split, read_manifest
from pfdl.data.context_images import StoredImages, store_images
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource
from pfdl.objectives import make_objective
from pfdl.runs import CONFIG, claim, read_run
from pfdl.vision.checkpoint import load_model
from pfdl.vision.config import SELECTIONS, TrainingConfig, check_contexts
from pfdl.vision.evaluation import evaluate, read_kept_epoch, save_evaluation
from pfdl.vision.sweep_journal import CANDIDATE, REASON, begin_study, keep_trials, open_study
from pfdl.vision.training import train

SPLIT = "splits/seed-{}.csv"
RUN = "runs/candidate-{}/seed-{}"
LEAVE_OUT = "leave-one-context-out"
"""The selection by the accuracy on images of a context that was not trained on, mean over all known
contexts.
"""


@dataclass(frozen=True)
class SweepConfig:
    """What is tried and how one candidate is chosen, all of it declared before anything is trained.

    A candidate that is behind the best one in each of the first three seeds is not trained on
    further ones, nor is one that falls behind later (p < 0.2 in Wilcoxon's test on paired seeds,
    see :class:`optuna.pruners.WilcoxonPruner`).

    Args:
        space: For each setting the values to try, or a range such as
            ``optuna.distributions.FloatDistribution(0.001, 0.1, log=True)``. A setting is a field
            of :class:`pfdl.vision.config.TrainingConfig`, or one of a part of the objective such as
            ``"pfdl.weight"``, which counts where the objective has that part. Other settings have
            their defaults.
        select: Which accuracy on validation images chooses, both the epoch of a training and the
            candidate: ``"accuracy"``, ``"worst-class"`` or ``"worst-group"``.
            ``"leave-one-context-out"`` trains a candidate once for each context of the training
            images, without it, and chooses by the mean accuracy on the context left out; plain
            accuracy on the others chooses the epoch. The chosen candidate is then trained on all
            contexts.
        seeds: Trainings of each candidate, on the seeds 0, 1, ….
        trials: How many candidates Optuna's TPE sampler proposes; None tries every combination,
            which ranges forbid.

    Raises:
        ValueError: If a value cannot be used.
    """

    space: Mapping[str, Sequence[Any] | BaseDistribution]
    select: str = "accuracy"
    seeds: int = 3
    trials: int | None = None

    def __post_init__(self) -> None:
        check_choice("select", self.select, (*SELECTIONS, LEAVE_OUT))
        check_count("seeds", self.seeds, 1)
        given = sorted({"seed", "select", "objective_settings"} & set(self.space))
        if given:
            raise ValueError(
                f"the space has {given[0]!r}; give seeds=, select= or a setting such as"
                " 'pfdl.weight'."
            )
        ranges = [
            name for name, values in self.space.items() if isinstance(values, BaseDistribution)
        ]
        if self.trials is not None:
            check_count("trials", self.trials, 1)
        if "image_size" in ranges:
            raise ValueError(
                "image_size is a range; name its values, each of which the images are decoded to"
                " once."
            )
        if ranges and self.trials is None:
            raise ValueError(
                f"{ranges[0]} is a range, which has no end; say how many to try by trials"
                " (--trials)."
            )

    @property
    def number(self) -> int:
        """How many candidates are tried."""
        return self.trials or len(self.combinations())

    def distributions(self) -> dict[str, BaseDistribution]:
        """Return the space as Optuna knows it."""
        known: dict[str, BaseDistribution] = {}
        for name, values in self.space.items():
            if isinstance(values, BaseDistribution):
                known[name] = values
            else:
                known[name] = CategoricalDistribution(values)
        return known

    def combinations(self) -> list[dict[str, Any]]:
        """Return the values of every candidate, once; none where trials are proposed."""
        if self.trials is not None:
            return []
        choices: Any = self.space.values()
        by_name: dict[str, dict[str, Any]] = {}
        for combination in product(*choices):
            values = dict(zip(self.space, combination, strict=True))
            name, _ = self.candidate(values)
            by_name.setdefault(name, values)  # a setting may not count in some of them
        return list(by_name.values())

    def candidate(self, values: Mapping[str, Any]) -> tuple[str, TrainingConfig]:
        """Return what tells a candidate from the others, such as ``"objective=pfdl, epochs=5"``,
        and its config.
        """
        parts = values.get("objective", TrainingConfig.objective).split("+")
        plain: dict[str, Any] = {"select": "accuracy" if self.select == LEAVE_OUT else self.select}
        of_parts: dict[str, dict[str, Any]] = {}
        varied = []
        for name, choices in self.space.items():
            part, dot, setting = name.partition(".")
            if not dot:
                plain[name] = values[name]
            elif part in parts:
                of_parts.setdefault(part, {})[setting] = values[name]
            else:
                continue
            if isinstance(choices, BaseDistribution) or len(choices) > 1:
                varied.append(f"{name}={values[name]}")
        return ", ".join(varied) or "as given", TrainingConfig(**plain, objective_settings=of_parts)


def sweep(
    config: SweepConfig,
    source: ContextSource,
    output: Path,
    *,
    ratio: str = "natural",
    device: str = "cpu",
    jobs: int = 1,
    console: Console | None = None,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Train what is missing, write ``results.csv``, choose, test the chosen candidate, and write
    ``chosen.json``.

    Test images play no part before the choice, and only the chosen candidate is tested. An
    interrupted sweep resumes, in the middle of a training too.

    Args:
        config: What is tried, and how one candidate is chosen.
        source: The images.
        output: The run folder, with ``trials.json`` (what came of each candidate), ``study.log``
            (Optuna's journal), ``splits`` (a manifest per seed) and ``runs`` (a run folder per
            candidate and seed).
        ratio: Proportion of the training set, as in :func:`pfdl.data.make_split`.
        device: Where to compute.
        jobs: How many candidates are trained at a time, in processes that share the cores of this
            machine; −1 for one on each core.
        console: Where to show progress; None for nowhere.

    Returns:
        Optuna's table of the candidates, in percent: ``value`` is the mean of
        ``intermediate_values_SEED``; and what was chosen, with the keys ``candidate``, ``settings``
        (for :class:`pfdl.vision.config.TrainingConfig`), ``validation`` (the score that chose it),
        ``test`` (for each test the mean accuracy and its standard error over the seeds; empty where
        there are no test images) and ``folders``, seen from that of the sweep.

    Raises:
        ValueError: If a candidate or the images cannot be used, every candidate failed, or the
            folder holds another run; more trials are the same run.
    """
    splits = [make_split(source, ratio=ratio, seed=seed) for seed in range(config.seeds)]
    _check_images(config, splits[0])
    space = {
        name: distribution_to_json(distribution)
        for name, distribution in config.distributions().items()
    }
    settings = {**vars(config), "space": space, "ratio": ratio, "device": device}
    with claim(output, "sweep", settings, may_change=("trials", "device")):
        for seed, split in enumerate(splits):
            split.save(output / SPLIT.format(seed))
        known = config.combinations() or _values_of_trainings(output, config)
        study = begin_study(output, config, known)
        done = len(study.get_trials(states=(TrialState.COMPLETE, TrialState.FAIL)))
        if done < config.number:
            _store_sizes(config, source, output, console)
            numbers = range(done, config.number)
            _try_candidates(study, config, output, numbers, device, jobs, console)
        results = study.trials_dataframe(
            ("number", "value", "intermediate_values", "user_attrs", "params", "state")
        )
        write_atomically(output / "results.csv", results.to_csv(index=False))
        choice = _test_best(study, config, splits, source, output, device)
        write_json(output / "chosen.json", choice)
        shutil.rmtree(output / "images", ignore_errors=True)
    return results, choice


def _check_images(config: SweepConfig, split: Manifest) -> None:
    """Refuse what the images do not allow, before anything is written."""
    if "validation" not in split.set_names:
        raise ValueError(
            "a sweep chooses by validation images, and the images do not suffice to hold any out."
        )
    if config.select == LEAVE_OUT and len(_contexts(split)) < 2:
        raise ValueError(
            f"select is {LEAVE_OUT!r}, and the training images are not of several known contexts."
        )
    for values in config.combinations():
        _, training = config.candidate(values)
        parts: dict[str, Any] = dict(training.objective_settings)
        objective = make_objective(training.objective, 2, num_classes=2, num_contexts=2, **parts)
        check_contexts(training, objective, split)


def _values_of_trainings(output: Path, config: SweepConfig) -> list[dict[str, Any]]:
    """Return the values of each candidate of which there is a training, in the order of their
    numbers; of others nothing.
    """
    values: dict[int, dict[str, Any]] = {}
    for path in output.glob(f"{RUN.format('*', '*')}/{CONFIG}"):
        number = int(path.parents[1].name.rpartition("-")[2])
        # A damaged one is trained again
        with suppress(OSError, ValueError, LookupError, TypeError):
            training = read_run(path.parent).settings["training"]
            values[number] = _values_in_space(training, config)
    return [values.get(number, {}) for number in range(max(values, default=-1) + 1)]


def _values_in_space(training: Mapping[str, Any], config: SweepConfig) -> dict[str, Any]:
    """Return the values that a training has of what a sweep varies, as far as it has them."""
    values = {}
    for name, distribution in config.distributions().items():
        part, dot, setting = name.partition(".")
        home = training["objective_settings"].get(part, {}) if dot else training
        key = setting or name
        if key in home and distribution._contains(distribution.to_internal_repr(home[key])):
            values[name] = home[key]
    return values


def _store_sizes(
    config: SweepConfig, source: ContextSource, output: Path, console: Console | None
) -> None:
    """Decode the images once to each size that is tried."""
    sizes: Any = config.space.get("image_size", (TrainingConfig.image_size,))
    for size in sizes:
        with progress_bar(f"decoding images, {size} pixels", console) as show:
            store_images(source, output / "images" / str(size), size, on_progress=show)


def _try_candidates(
    study: optuna.Study,
    config: SweepConfig,
    output: Path,
    numbers: range,
    device: str,
    jobs: int,
    console: Console | None,
) -> None:
    """Train the candidates that are missing, several at a time, and say what came of each."""
    work = partial(_try_candidate, output=output, config=config, device=device)
    tasks = [{"number": number} for number in numbers]
    at_once = min(len(tasks), joblib.effective_n_jobs(jobs))
    outcomes = run_tasks(work, tasks, at_once, share_of_threads(at_once), device)
    say = (console or Console(quiet=True)).out
    with progress_bar("training candidates", console) as show:
        show(numbers.start, config.number)
        for done, (_, outcome) in enumerate(outcomes, start=numbers.start + 1):
            keep_trials(study, output)
            show(done, config.number)
            sentence = f"{done} of {config.number} candidates: {outcome}"
            say(printable(sentence), highlight=False)


def _try_candidate(number: int, *, output: Path, config: SweepConfig, device: str) -> str:
    """Train the next candidate on seed after seed, and say what came of it. No test image is
    read.
    """
    study = open_study(output)
    # A sweep that was started again, or tries several at a time, must not propose what was proposed
    # already.
    study.sampler = TPESampler(seed=1000 * number + len(study.trials))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # the pruner's interface may change
        study.pruner = WilcoxonPruner(p_threshold=0.2)  # behind in all of three seeds is p = 0.125
    trial = study.ask(config.distributions())
    earlier = study.get_trials()[: trial.number]
    scores: dict[int, float] = {}
    label, training = config.candidate(trial.params)
    trial.set_user_attr(CANDIDATE, label)
    try:
        if label in (before.user_attrs.get(CANDIDATE) for before in earlier):
            raise ValueError("it was proposed before")
        for seed in range(config.seeds):
            folder = output / RUN.format(trial.number, seed)
            scores[seed] = _validate(
                replace(training, seed=seed), config.select, folder, output, device
            )
            trial.report(scores[seed], seed)
            if trial.should_prune():
                break
    except ValueError as error:
        trial.set_user_attr(REASON, str(error))
        study.tell(trial, state=TrialState.FAIL)
        return f"{label}, failed, because {error}"
    study.tell(trial, fmean(scores.values()))
    return f"{label}, {fmean(scores.values()):.1f} %"


def _validate(
    config: TrainingConfig, select: str, folder: Path, output: Path, device: str
) -> float:
    """Train, and return the accuracy in percent that chooses."""
    split = read_manifest(output / SPLIT.format(config.seed))
    source = StoredImages(output / "images" / str(config.image_size))
    if select != LEAVE_OUT:
        train(config, source, split, folder, device=device, devices=1)
        return 100 * read_kept_epoch(folder, select)[SELECTIONS[select]]
    shares = []
    for number, context in enumerate(_contexts(split)):
        part = _leave_out(split, context)
        place = folder.with_name(f"{folder.name}-without-{number}")
        train(config, source, part, place, device=device, devices=1)
        result = evaluate(load_model(place), source, part, device=device)
        save_evaluation(place, result)
        shares.append(100 * result.overall)
    return fmean(shares)


def _contexts(split: Manifest) -> list[str]:
    return sorted({row.context for row in split.rows_of("train") if row.context})


def _leave_out(split: Manifest, context: str) -> Manifest:
    """Return a split that tests on a context that it does not train on; the test images of the
    whole are not in it.
    """
    seen = [row for row in split.rows if {"train", "validation"} & set(row.sets)]
    rows = [
        row._replace(side="test", sets=("test",)) if row.context == context else row for row in seen
    ]
    return Manifest(tuple(rows), split.parameters)


def _test_best(
    study: optuna.Study,
    config: SweepConfig,
    splits: Sequence[Manifest],
    source: ContextSource,
    output: Path,
    device: str,
) -> dict[str, Any]:
    """Test the best candidate, of equals the first."""
    if all(trial.state is TrialState.FAIL for trial in study.trials):
        reason = study.trials[0].user_attrs[REASON]
        raise ValueError(f"every candidate of the sweep failed; the first one because {reason}")
    best = study.best_trial
    label, training = config.candidate(best.params)
    folders = [RUN.format(best.number, seed) for seed in range(config.seeds)]
    tests = []
    for seed, (folder, split) in enumerate(zip(folders, splits, strict=True)):
        if config.select == LEAVE_OUT:  # until now each training was without one of the contexts
            train(
                replace(training, seed=seed),
                source,
                split,
                output / folder,
                device=device,
                devices=1,
            )
        if "test" in split.set_names:
            result = evaluate(load_model(output / folder), source, split, device=device)
            save_evaluation(output / folder, result)
            worst = "worst group" if result.by_context else "worst class"
            tests.append(
                {"all": result.overall, worst: result.worst_group.accuracy, **result.by_ratio}
            )
    return {
        "candidate": label,
        "settings": {name: value for name, value in asdict(training).items() if name != "seed"},
        "validation": study.best_value,
        "test": {
            str(test): shares.agg(["mean", "sem"]).tolist()
            for test, shares in (100 * pd.DataFrame(tests)).items()
        },
        "folders": folders,
    }
