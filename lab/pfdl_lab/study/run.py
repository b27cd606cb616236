"""The study of images: does PFDL help, where, and what helps more? Many small trainings on paired seeds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console
from sklearn.metrics import normalized_mutual_info_score
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from pfdl._internal.files import write_atomically
from pfdl._internal.progress import counting
from pfdl._internal.runs import claim
from pfdl._internal.validation import check_choice, check_count
from pfdl._internal.workers import HERE, Execution
from pfdl.contexts import group_accuracy, refit_readout, worst_group_accuracy
from pfdl.contexts.balancing import has_several
from pfdl.data.context_images import HIDDEN_CONTEXT
from pfdl.data.sources import ContextSource
from pfdl.vision.features import embed
from pfdl.vision.refitting import with_readout
from pfdl_lab.grid import run_grid, unfinished
from pfdl_lab.images import image_store
from pfdl_lab.study.data import WHOLE, Split, StudyData
from pfdl_lab.study.inferred import INFERRED, infer_task, inference_tasks, inferred_contexts
from pfdl_lab.study.rows import find_row
from pfdl_lab.training import BestWeights, DivergedError, Progress, Samples, TrainingSettings, predict, train

ESS, NUMBER, AGREEMENT = "effective sample size", "contexts found", "agreement with true contexts"
DIVERGED = "diverged"
CHOSEN = ", chosen epoch"
"""Ends the name of a test of the epoch that held-out samples chose."""

VALIDATION = "validation, "
"""Begins the name of the score by which held-out samples chose; the rule follows."""

NOT_ACCURACY = (ESS, NUMBER, AGREEMENT, DIVERGED)
"""What results.csv has in the column of tests that is no accuracy."""

SELECT = ("last", "accuracy", "worst-group")
"""Rules for the epoch that counts."""

HELD_OUT = 0.1
"""Share of the training samples by which an epoch is chosen."""

COLUMNS = ("dataset", "row", "seed", "test", "value")
"""Of ``results.csv``."""


@dataclass(frozen=True)
class StudyConfig:
    """How large the study is.

    Args:
        rows: Keys for :func:`pfdl_lab.study.rows.find_row`.
        seeds: Paired repetitions.
        first_seed: The first of them; what was tried while a method was made should have others.
        epochs: Passes over the training samples.
        learning_rate: Of SGD.
        select: The epoch that counts. ``"last"``; or also the one that does best on a tenth of the training
            samples, held out: by its ``"accuracy"``, or by its ``"worst-group"``, whose contexts are inferred except
            for oracles; where epochs are equal in that, by the average over groups. The rule is the same for all rows.
    """

    rows: tuple[str, ...]
    seeds: int = 10
    first_seed: int = 0
    epochs: int = 30
    learning_rate: float = 0.01
    select: str = "last"

    def __post_init__(self) -> None:
        check_choice("select", self.select, SELECT)


def run(config: StudyConfig, datasets: Sequence[StudyData], output: Path, execution: Execution = HERE) -> pd.DataFrame:
    """Train and test what is missing, and write ``results.csv``.

    Args:
        config: How large the study is.
        datasets: The data sets.
        output: The run folder, with ``contexts`` (those that were inferred, and why they are believed), ``cells``
            (finished trainings) and ``results.csv``.
        execution: Where the trainings run, and how many at a time; its console also says what is left out.

    Returns:
        One line per data set, row, seed and test, see :func:`run_task`.

    Raises:
        ValueError: If a row or data set cannot be used, or the folder holds another run.
    """
    for row in config.rows:
        find_row(row)
    check_count("seeds", config.seeds, 2)
    with counting("checking images", execution.console) as show:
        sources = [dataset.open(show) for dataset in datasets]
        rows = [_rows_for(config, *one, execution.console) for one in zip(datasets, sources, strict=True)]
    settings = {**asdict(config), "datasets": [asdict(dataset) for dataset in datasets], **execution.settings}
    may_change = ("rows", "seeds", "first_seed", "datasets", *execution.settings)
    how = {name: value for name, value in asdict(config).items() if name not in ("rows", "seeds", "first_seed")}
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    places = [(seed, *place) for seed in seeds for place in zip(datasets, rows, strict=True)]
    tasks = [{**dataset.task, "row": row, "seed": seed, **how} for seed, dataset, keys in places for row in keys]
    with claim(output, "study", settings, may_change=may_change), image_store(output / "images") as store:
        images = {}
        if unfinished(tasks, output / "cells"):
            for number, (dataset, source) in enumerate(zip(datasets, sources, strict=True)):
                if source is not None:
                    images[dataset] = store(source, dataset.image_size, str(number))
            inferences = [
                task
                for seed, dataset, keys in places
                for task in inference_tasks(dataset, keys, seed, judging=config.select != "last")
            ]
            if inferences:
                infer = partial(infer_task, images=images)
                run_grid(infer, inferences, output / "contexts", execution)
        function = partial(run_task, device=execution.device, images=images, contexts=output / "contexts")
        results = run_grid(function, tasks, output / "cells", execution)
        write_atomically(output / "results.csv", results[list(COLUMNS)].to_csv(index=False))
    return results


def _rows_for(
    config: StudyConfig, dataset: StudyData, source: ContextSource | None, console: Console | None
) -> tuple[str, ...]:
    """Return the rows that a data set allows: oracles need known contexts. What cannot be split is refused here."""
    if source is None or dataset.make_manifest(source, config.first_seed).has_contexts:
        return config.rows
    kept = tuple(row for row in config.rows if find_row(row).contexts != "known")
    left_out = [row for row in config.rows if row not in kept]
    if left_out and not kept:
        raise ValueError(f"{dataset.data} has no contexts, which {', '.join(left_out)} needs; name other rows.")
    if left_out and console is not None:
        console.print(f"{dataset.data} has no contexts; left out there: {', '.join(left_out)}.", soft_wrap=True)
    return kept


def run_task(
    row: str,
    seed: int,
    *,
    device: str,
    images: Mapping[StudyData, Path],
    epochs: int,
    learning_rate: float,
    select: str = "last",
    contexts: Path | None = None,
    **dataset: Any,
) -> list[dict[str, Any]]:
    """Train one row with one seed and test it.

    Args:
        row: Key of the row.
        seed: Of the split, the first weights and all that training draws.
        device: Where to compute.
        images: For each data set of images, where they are stored.
        epochs: Passes over the training samples.
        learning_rate: Of SGD.
        select: See :class:`StudyConfig`.
        contexts: Where contexts lie that were inferred before; others are inferred here.
        **dataset: What :class:`pfdl_lab.study.data.StudyData` takes.

    Returns:
        Lines of ``dataset`` (its name), ``test`` and ``value``: accuracy in percent by test set (of a whole test set
        also that of its worst class or, with known contexts, its worst group), the effective sample
        size as a share of the batch (mean over the last epoch), where training diverged a 1 for that, and, where
        contexts were inferred, their number and their normalised mutual information with the true ones.
    """
    what, place = find_row(row), StudyData(**dataset)
    split = place.split(seed, images.get(place))
    know = partial(_environments, place=place, split=split, seed=seed, images=images, folder=contexts)
    environments = know(what.contexts)
    chooser = None
    if select != "last":
        kept, held_out = _hold_out(split.train.labels, seed)
        judged = know("known" if what.contexts == "known" else "inferred")[held_out]
        inputs, labels, _ = split.train
        chooser = _Chooser(Samples(inputs[held_out], labels[held_out], judged), select, device)
        split = split._replace(train=Samples(*(part[kept] for part in split.train)))
        environments = environments[kept]
    settings = TrainingSettings(
        objective=what.objective,
        settings=what.settings,
        layer=what.layer,
        class_centred=what.class_centred,
        epochs=epochs,
        batch_size=what.batch_size,
        learning_rate=learning_rate,
        sampler=what.sampler,
        seed=seed,
    )
    _repeatable(device)
    torch.manual_seed(seed)
    model = split.make_model(what.width)
    values: dict[str, float] = {}
    try:
        metrics = train(settings, model, split.train, environments, device=device, after_epoch=chooser)
        values[ESS] = metrics.get("effective_sample_size", 1.0)
    except DivergedError:
        values[DIVERGED] = 1.0
    refit = what.refit and has_several(environments) and DIVERGED not in values
    for remark in ("", CHOSEN) if chooser is not None else ("",):
        if chooser is not None and remark:
            model.load_state_dict(chooser.best.weights)
            values[f"{VALIDATION}{select}"] = 100 * chooser.best.score
        # With one context there is nothing to balance, and the last layer stays.
        tested = _refitted(model, split, environments, seed, device) if refit else model
        values |= {f"{name}{remark}": value for name, value in _accuracies(tested, split, device).items()}
    if what.contexts in INFERRED:
        values[NUMBER] = len(set(environments.tolist()))
    if what.contexts in INFERRED and split.has_contexts:
        values[AGREEMENT] = float(normalized_mutual_info_score(split.train.contexts, environments))
    return [{"dataset": place.name, "test": test, "value": value} for test, value in values.items()]


def _accuracies(model: nn.Module, split: Split, device: str) -> dict[str, float]:
    """Return accuracy in percent by test set; of a whole test set also that of its worst class or group."""
    values = {}
    for name, test in split.tests.items():
        predicted = predict(model, test.inputs, device=device)
        values[name] = 100 * float((predicted == test.labels).double().mean())
        if name == WHOLE:
            worst = worst_group_accuracy(predicted, test.labels, test.contexts)
            values["worst group" if split.has_contexts else "worst class"] = 100 * worst
    return values


class _Chooser:
    """Remembers the weights of the epoch that does best on held-out samples; called after every epoch."""

    def __init__(self, held_out: Samples, select: str, device: str) -> None:
        self.held_out, self.select, self.device = held_out, select, device
        self.best = BestWeights()

    def __call__(self, progress: Progress) -> None:
        inputs, labels, contexts = self.held_out
        predicted = predict(progress.model, inputs, device=self.device)
        found = group_accuracy(predicted, labels, contexts)
        self.best.offer(progress, *((found.overall,) if self.select == "accuracy" else found.worst_then_average))


def _hold_out(labels: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return the rows that are trained on and those that are held out, the same share of each class."""
    kept, held_out = train_test_split(
        torch.arange(len(labels)).numpy(), test_size=HELD_OUT, stratify=labels.numpy(), random_state=seed
    )
    return torch.from_numpy(kept).sort().values, torch.from_numpy(held_out).sort().values


def _environments(
    contexts: str, place: StudyData, split: Split, seed: int, images: Mapping[StudyData, Path], folder: Path | None
) -> Tensor:
    """Return what the objective may know of the contexts."""
    if contexts in INFERRED:
        return inferred_contexts(place, contexts, seed, images, folder)
    if contexts == "known":
        return split.train.contexts
    return torch.full_like(split.train.labels, 0 if contexts == "one" else HIDDEN_CONTEXT)


def _refitted(model: nn.Module, split: Split, contexts: Tensor, seed: int, device: str) -> nn.Module:
    """Return the network with its last layer refitted on training samples in which all groups count equally."""
    features = embed(model, split.train.inputs, device=device)
    classes = int(split.train.labels.max()) + 1
    readout = refit_readout(features, split.train.labels, contexts, num_classes=classes, seed=seed)
    return with_readout(model, readout).to(device)


def _repeatable(device: str) -> None:
    """Let a GPU add in a fixed order: methods that do the same must have the same result."""
    if device != "cpu":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
