"""Train rows on data sets with paired seeds, and test them: the experiment behind ``reproduce
nico`` and ``study``.

All rows of a seed share the split, the first weights, the order of the samples and the
augmentation, if they are made by one revision of the code; a sampler has an order of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console
from sklearn.metrics import normalized_mutual_info_score
from torch import Tensor, nn

from pfdl._internal.progress import progress_bar
from pfdl.contexts import refit_readout
from pfdl.contexts.refitting import large_groups
from pfdl.data.context_images import store_images
from pfdl.data.sources import ContextSource, ImageFiles
from pfdl.runs import claim
from pfdl.vision.config import TrainingConfig
from pfdl.vision.features import embed
from pfdl.vision.refitting import with_readout
from pfdl_lab.grid import finish, run_grid, unfinished
from pfdl_lab.images.config import ImagesConfig
from pfdl_lab.images.data import ImageData, Split, fingerprint
from pfdl_lab.images.inferred import INFERRED, contexts_for, infer, kinds_needed
from pfdl_lab.images.networks import FEATURES, FROZEN, make_network, write_features
from pfdl_lab.images.rows import Row, find_row
from pfdl_lab.images.testing import LAST, Refit, Tester
from pfdl_lab.progress import report
from pfdl_lab.training import DivergedError, Progress, Samples, train_row
from pfdl_lab.workers import IN_SEQUENCE, Execution

KIND = "images"
COLUMNS = ("data", "backbone", "row", "seed", "epoch", "test", "value")
"""Of ``results.csv``. The backbone is the experiment's; a row that has one of its own says so in
its title.
"""

ESS = "effective sample size"
NUMBER = "contexts found"
AGREEMENT = "agreement with true contexts"
OF_ALL = ("effective_share_of_all", "mean_weight")
"""What DWR reports of its weights of all training samples."""

DIVERGED = "diverged"
REFITTED = "refitted"

Contexts = dict[tuple[str, int, str], Tensor]
"""Inferred contexts by the data set, the seed and how they were inferred."""


def run(
    config: ImagesConfig,
    datasets: Sequence[ImageData],
    output: Path,
    execution: Execution = IN_SEQUENCE,
) -> pd.DataFrame:
    """Train and test what is missing, and write ``results.csv``.

    Args:
        config: How the experiment is made.
        datasets: The data sets.
        output: The run folder, with ``contexts`` (those that were inferred, and why they are
            believed), ``cells`` (finished trainings) and ``results.csv``.
        execution: Where the trainings run, and how many at a time; its console also says what is
            left out.

    Returns:
        One line per data set, row, seed, epoch and test, see :func:`run_task`.

    Raises:
        ValueError: If the images cannot be used, or the folder holds another run; more or other
            rows, seeds and data sets are the same run.
    """
    places = {dataset.name: dataset for dataset in datasets}
    if len(places) < len(datasets):
        raise ValueError(
            "two data sets have the same name, by which results are known; rename a folder."
        )
    with progress_bar("checking images", execution.console) as show:
        sources = {name: dataset.open() for name, dataset in places.items()}
        for source in sources.values():
            if isinstance(source, ImageFiles):
                source.check(show)
        rows = {
            name: _rows_for(config, places[name], sources[name], execution.console)
            for name in places
        }
    tasks, inferences = _plan(config, places, sources, rows)
    settings = {
        **asdict(config),
        **config.training,
        "datasets": list(map(asdict, datasets)),
        **execution.settings,
    }
    may_change = ("rows", "seeds", "first_seed", "datasets", *execution.settings)
    folder = output / "images"
    with claim(output, KIND, settings, may_change=may_change):
        share: dict[str, Any] = {"datasets": places, "folder": folder}
        contexts: Contexts = {}
        if unfinished(tasks, output / "cells"):
            for name, source in sources.items():
                if source is not None:
                    sizes = {find_row(row).image_size or config.size for row in rows[name]}
                    _store(source, folder / name, sizes, config, execution.device)
            infer = partial(infer_task, **share)
            found = run_grid(infer, inferences, output / "contexts", execution)
            for task, (_, line) in zip(inferences, found.iterrows(), strict=True):
                key = (task["data"], task["seed"], task["contexts"])
                contexts[key] = torch.tensor(line["contexts"])
        function = partial(run_task, **share, contexts=contexts, device=execution.device)
        results = run_grid(function, tasks, output / "cells", execution)
        finish(results[list(COLUMNS)], output, "contexts", "cells")
        shutil.rmtree(folder, ignore_errors=True)  # an interrupted run finds the images again
    return results


def _plan(
    config: ImagesConfig,
    places: Mapping[str, ImageData],
    sources: Mapping[str, ContextSource | None],
    rows: Mapping[str, Sequence[str]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a task for each training, and one for each inference of contexts that they need."""
    prints = {name: fingerprint(source) for name, source in sources.items()}
    judging = config.validation > 0 and config.select == "worst-group"
    tasks = list[dict[str, Any]]()
    inferences = list[dict[str, Any]]()
    for number, (name, dataset) in product(range(config.seeds), places.items()):
        known = {
            "data": name,
            "images": prints[name],
            "group_by": dataset.group_by,
            "mnist": dataset.mnist,
            "seed": config.first_seed + number,
            "config": config.training,
        }
        tasks += [{**known, "row": row} for row in rows[name]]
        kinds = kinds_needed(rows[name], judging=judging)
        inferences += [{**known, "contexts": kind} for kind in kinds]
    return tasks, inferences


def _store(
    source: ContextSource, folder: Path, sizes: Iterable[int], config: ImagesConfig, device: str
) -> None:
    """Store images in each size, and their features if those are trained on."""
    for size in sizes:
        place = store_images(source, folder.with_name(f"{folder.name}-{size}"), size)
        if config.backbone == FROZEN and not (place / FEATURES).exists():
            write_features(place, device)


def _rows_for(
    config: ImagesConfig, dataset: ImageData, source: ContextSource | None, console: Console | None
) -> tuple[str, ...]:
    """Return the rows that a data set allows: oracles need known contexts. What cannot be split is
    refused here.
    """
    if (
        source is None
        or dataset.make_manifest(source, config.first_seed, config.validation).has_contexts
    ):
        return config.rows
    kept = tuple(row for row in config.rows if find_row(row).contexts != "known")
    left_out = [row for row in config.rows if row not in kept]
    if left_out and not kept:
        raise ValueError(
            f"{dataset.data} has no contexts, which {', '.join(left_out)} needs; name other rows."
        )
    if left_out and console is not None:
        console.print(
            f"{dataset.data} has no contexts; left out there: {', '.join(left_out)}.",
            soft_wrap=True,
        )
    return kept


def _split(
    place: ImageData, config: ImagesConfig, row: str | None, seed: int, folder: Path
) -> tuple[str, Split]:
    """Return the network that a row trains, and the samples in the size that it wants."""
    what = None if row is None else find_row(row)
    network = place.own_network or (what and what.backbone) or config.backbone
    size = (what and what.image_size) or config.size
    images = None if place.own_network else folder / f"{place.name}-{size}"
    return network, place.split(seed, network=network, validation=config.validation, images=images)


def infer_task(
    data: str,
    contexts: str,
    seed: int,
    config: Mapping[str, Any],
    *,
    datasets: Mapping[str, ImageData],
    folder: Path,
    **_: Any,
) -> list[dict[str, Any]]:
    """Infer the contexts of one split; the arguments are those of :func:`run_task`."""
    split = _split(datasets[data], ImagesConfig((), **config), None, seed, folder)[1]
    return infer(split, contexts, seed)


def run_task(
    data: str,
    row: str,
    seed: int,
    config: Mapping[str, Any],
    *,
    datasets: Mapping[str, ImageData],
    folder: Path,
    contexts: Contexts,
    device: str,
    **_: Any,
) -> list[dict[str, Any]]:
    """Train one row with one seed and test it.

    Args:
        data: Name of the data set.
        row: Key of the row.
        seed: Seed of the split, the first weights and all that training draws.
        config: What :class:`pfdl_lab.images.config.ImagesConfig` takes, except rows and seeds.
        datasets: The data sets by their names.
        folder: Where their images are stored.
        contexts: Contexts that were inferred before; others are inferred here.
        device: Where to compute.
        **_: What else tells results on this data from results on other data.

    Returns:
        Lines of ``backbone``, ``epoch`` (a number, ``last`` or ``chosen``), ``test`` and ``value``:
        accuracies in percent, and what the objective and the probe report. The last epoch also has
        the effective sample size as a share of the batch, a 1 for a training that diverged, a 1 or
        0 for a last layer that was refitted or could not be and, where contexts were inferred,
        their number and their normalised mutual information with the true ones.
    """
    how = ImagesConfig((row,), **config)
    what = find_row(row)
    network, split = _split(datasets[data], how, row, seed, folder)

    def find(kind: str) -> Tensor:
        found = contexts.get((data, seed, kind))
        return torch.tensor(infer(split, kind, seed)[0]["contexts"]) if found is None else found

    environments, judged = contexts_for(what.contexts, split, find)
    if how.validation and how.select == "worst-group" and what.contexts not in ("known", "halves"):
        judged = contexts_for("inferred", split, find)[1]
    training = _training(what, how, split, seed, device)
    off = round(what.until * how.epochs)
    tester = Tester(
        split, judged, how, switch_off_after=off, batch_size=training.batch_size, device=device
    )
    _choose_algorithms(device, how.deterministic)
    torch.manual_seed(seed)  # rows of one seed start from the same weights
    model = make_network(network, split.train.inputs, split.classes, width=what.width)
    refit = None
    if what.refit == "train":
        refit = _refitting(split.train, environments, split.classes, seed, device)
    elif what.refit == "held-out":
        refit = _refitting(split.validation, judged, split.classes, seed, device)

    def after_epoch(progress: Progress) -> None:
        report(progress.epoch, how.epochs)
        tester(progress)

    report(0, how.epochs, f"{data}: {row}, seed {seed}, epochs")
    try:
        metrics = train_row(
            training,
            model,
            split.train,
            environments,
            layer=what.layer,
            class_centred=what.class_centred,
            device=device,
            after_epoch=after_epoch,
        )
        values = {ESS: metrics.get("effective_sample_size", 1.0)}
        values |= {name: metrics[name] for name in OF_ALL if name in metrics}
        if what.refit != "no":
            values[REFITTED] = float(refit is not None)
        tester.finish(model, refit)
    except DivergedError:
        values = {DIVERGED: 1.0}
        tester.note(LAST, tester.accuracies(model))
    if what.contexts in INFERRED:
        values[NUMBER] = len(set(environments.tolist()))
        if split.has_contexts:
            agreement = normalized_mutual_info_score(split.train.contexts, environments)
            values[AGREEMENT] = float(agreement)
    tester.note(LAST, values)
    backbone = datasets[data].own_network or how.backbone
    return [{"backbone": backbone, **line} for line in tester.lines]


def _training(what: Row, how: ImagesConfig, split: Split, seed: int, device: str) -> TrainingConfig:
    """Return how a row is trained."""
    return TrainingConfig(
        objective=what.objective,
        objective_settings=what.settings,
        epochs=how.epochs,
        decay_every=how.decay_every,
        batch_size=what.batch_size or how.batch_size,
        learning_rate=what.learning_rate or how.learning_rate,
        weight_decay=what.weight_decay,
        sampler=what.sampler,
        augment="flip-shift" if split.train.inputs.dim() == 4 else "none",
        precision=how.precision if device.startswith("cuda") else "32",
        seed=seed,
    )


def _refitting(
    samples: Samples, contexts: Tensor, classes: int, seed: int, device: str
) -> Refit | None:
    """Return what refits the last layer so that all groups count equally; None with one context or
    too few images.
    """
    try:
        large_groups(samples.labels.numpy(), contexts)
    except ValueError:
        return None

    def refit(network: nn.Module) -> nn.Module:
        features = embed(network, samples.inputs, device=device)
        readout = refit_readout(features, samples.labels, contexts, num_classes=classes, seed=seed)
        return with_readout(network, readout).to(device)

    return refit


def _choose_algorithms(device: str, deterministic: bool) -> None:
    """Let a GPU add in a fixed order, or take whatever is fastest."""
    torch.backends.cudnn.benchmark = not deterministic
    if device != "cpu" and deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
