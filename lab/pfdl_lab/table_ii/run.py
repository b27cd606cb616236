"""Train the paper's backbone by the paper's schedule, row by row on paired seeds, and test it along the way."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from pfdl._internal.files import write_atomically
from pfdl._internal.progress import counting
from pfdl._internal.runs import claim
from pfdl._internal.validation import check_choice
from pfdl._internal.workers import HERE, Execution
from pfdl.contexts import worst_group_accuracy
from pfdl.data import make_split, open_images
from pfdl.data.context_images import HIDDEN_CONTEXT
from pfdl.data.manifest import Manifest, read_groups
from pfdl.decorrelation import PartialDecorrelation
from pfdl.vision.backbones import make_backbone
from pfdl_lab.contexts.rows import RATIOS
from pfdl_lab.grid import run_grid, unfinished
from pfdl_lab.images import StoredImages, image_store
from pfdl_lab.table_ii.probe import probe
from pfdl_lab.table_ii.rows import PAPER_BACKBONE, ROWS
from pfdl_lab.training import (
    BestWeights,
    DivergedError,
    Progress,
    Samples,
    TrainingSettings,
    logits_of,
    predict,
    train,
)

COLUMNS = ("data", "backbone", "row", "seed", "epoch", "test", "value")
WHOLE, WORST = "whole", "worst group"
LAST, CHOSEN = "last", "chosen"
"""The epochs that count: the last, and the one with the best accuracy on validation images of the training mixture."""


@dataclass(frozen=True)
class TableConfig:
    """How the table is made; the defaults are the paper's, where it says.

    Args:
        rows: Keys of ``ROWS``.
        seeds: Paired repetitions.
        first_seed: The first of them.
        backbone: The network, from scratch, with its own stem.
        image_size: Height and width.
        epochs: Passes over the training images.
        decay_every: Epochs after which the learning rate falls to a tenth.
        batch_size: Images per step; the paper does not say.
        validation_fraction: Share of the training set that is held out to choose an epoch.
        test_every: Test after every so many epochs, for the curves.
    """

    rows: tuple[str, ...] = ("erm", "pfdl", "level")
    seeds: int = 12
    first_seed: int = 0
    backbone: str = PAPER_BACKBONE
    image_size: int = 96
    epochs: int = 160
    decay_every: int = 80
    batch_size: int = 64
    validation_fraction: float = 0.1
    test_every: int = 5


def run(
    config: TableConfig,
    data: Path,
    output: Path,
    *,
    group_by: str | None = None,
    execution: Execution = HERE,
) -> pd.DataFrame:
    """Train and test what is missing, and write ``results.csv``.

    Args:
        config: How.
        data: Images in contexts, in any form that :func:`pfdl.data.open_images` takes.
        output: The run folder, with ``cells`` (finished trainings) and ``results.csv``.
        group_by: ``CSV:COLUMN``: images with the same entry stay on one side of the split.
        execution: Where the trainings run, and how many at a time.

    Returns:
        One line per row, seed, epoch and test.

    Raises:
        ValueError: If a row or the images cannot be used, or the folder holds another run.
    """
    for row in config.rows:
        check_choice("the row", row, ROWS)
    how = {name: value for name, value in asdict(config).items() if name not in ("rows", "seeds", "first_seed")}
    tasks = [
        {"data": data.name, "row": row, "seed": seed, **how}
        for seed in range(config.first_seed, config.first_seed + config.seeds)
        for row in config.rows
    ]
    settings = {**asdict(config), "data": data.name, "group_by": group_by, **execution.settings}
    may_change = ("rows", "seeds", "first_seed", *execution.settings)
    with counting("checking images", execution.console) as show:
        source = open_images(data, layout="class/context", on_bad_image="skip", on_progress=show)
        if not any(sample.context for sample in source.samples):
            raise ValueError(f"the images of {data} have no contexts, and the table is about contexts that shift.")
    with claim(output, "table-ii", settings, may_change=may_change), image_store(output / "images") as store:
        if unfinished(tasks, output / "cells"):
            store(source, config.image_size, "all")
        function = partial(run_task, images=output / "images" / "all", group_by=group_by, device=execution.device)
        results = run_grid(function, tasks, output / "cells", execution)
        write_atomically(output / "results.csv", results[list(COLUMNS)].to_csv(index=False))
    return results


def run_task(
    data: str,
    row: str,
    seed: int,
    backbone: str,
    image_size: int,
    epochs: int,
    decay_every: int,
    batch_size: int,
    validation_fraction: float,
    test_every: int,
    *,
    images: Path,
    group_by: str | None,
    device: str,
) -> list[dict[str, Any]]:
    """Train one row with one seed; the arguments are those of :class:`TableConfig` and :func:`run`.

    Returns:
        Lines of ``epoch``, ``test`` and ``value``: accuracies in percent, and what the objective and the probe report.
    """
    source = StoredImages(images)
    groups = None if group_by is None else read_groups(group_by)
    manifest = make_split(source, ratio="5:1", seed=seed, validation_fraction=validation_fraction, groups=groups)
    train_set, validation = (Samples(*source.part(manifest, name)) for name in ("train", "validation"))
    judge = _Judge(manifest, source, validation, test_every, epochs, device)
    settings = TrainingSettings(
        objective=ROWS[row].objective,
        settings=ROWS[row].settings,
        epochs=epochs,
        decay_every=decay_every,
        batch_size=batch_size,
        weight_decay=ROWS[row].weight_decay,
        seed=seed,
    )
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(seed)  # rows of one seed start from the same weights
    model = make_backbone(backbone, len(manifest.classes), image_size=image_size)
    hidden = torch.full_like(train_set.labels, HIDDEN_CONTEXT)
    judge.probed = train_set.inputs[:batch_size]
    try:
        train(settings, model, train_set, hidden, device=device, make=ROWS[row].make, after_epoch=judge.look)
    except DivergedError:
        judge.note(LAST, {"diverged": 1.0})
    else:
        judge.finish(model)
    return [{"backbone": backbone, **line} for line in judge.lines]


class _Judge:
    """Tests a network along its training, and remembers the weights that were best on the validation images."""

    def __init__(
        self,
        manifest: Manifest,
        source: StoredImages,
        validation: Samples,
        test_every: int,
        epochs: int,
        device: str,
    ) -> None:
        self.test = _to(Samples(*source.part(manifest, "test")), device)
        rows = {row.path: index for index, row in enumerate(manifest.rows_of("test"))}
        self.sets = {
            ratio: torch.tensor([rows[row.path] for row in manifest.rows_of(f"test-{ratio}")])
            for ratio in RATIOS
            if f"test-{ratio}" in manifest.set_names
        }
        self.validation = _to(validation, device)
        self.test_every, self.epochs, self.device = test_every, epochs, device
        self.lines: list[dict[str, Any]] = []
        self.probed: Tensor | None = None
        self.best = BestWeights()

    def note(self, epoch: int | str, values: Mapping[str, float]) -> None:
        """Write down values of an epoch."""
        self.lines += [{"epoch": str(epoch), "test": name, "value": value} for name, value in values.items()]

    def look(self, progress: Progress) -> None:
        """Validate after every epoch; test, and probe the penalty, after some."""
        right = predict(progress.model, self.validation.inputs, device=self.device) == self.validation.labels.cpu()
        accuracy = 100 * float(right.double().mean())
        self.best.offer(progress, accuracy)
        if progress.epoch % self.test_every and progress.epoch not in (1, 2, 5):
            return
        values = self.accuracies(progress.model)
        self.note(progress.epoch, {"validation": accuracy, **progress.metrics, **values, **self._probe(progress)})

    def finish(self, model: nn.Module) -> None:
        """Test the last weights and those that were best on the validation images."""
        self.note(LAST, self.accuracies(model))
        model.load_state_dict(self.best.weights)
        self.note(CHOSEN, {**self.accuracies(model), "validation": self.best.score, "epoch": self.best.epoch})

    def accuracies(self, model: nn.Module) -> dict[str, float]:
        """Return accuracy in percent at the seven ratios, on the whole test side, and of the worst group."""
        labels, contexts = self.test.labels.cpu(), self.test.contexts.cpu()
        predicted = predict(model, self.test.inputs, device=self.device)
        right = (predicted == labels).double()
        found = {ratio: float(right[rows].mean()) for ratio, rows in self.sets.items()}
        found |= {WHOLE: float(right.mean()), WORST: worst_group_accuracy(predicted, labels, contexts)}
        return {name: 100 * value for name, value in found.items()}

    def _probe(self, progress: Progress) -> dict[str, float]:
        penalties = [part for part in progress.objective.modules() if isinstance(part, PartialDecorrelation)]
        if not penalties or self.probed is None:
            return {}
        state = copy.deepcopy(dict(progress.model.named_buffers()))
        with torch.no_grad():  # in training mode, as the penalty sees the features; the batch statistics are put back
            logits_of(progress.model, self.probed.to(self.device))
            for name, value in progress.model.named_buffers():
                value.copy_(state[name])
        return probe(penalties[0], progress.tap.features.float())


def _to(samples: Samples, device: str) -> Samples:
    return Samples(*(part.to(device) for part in samples))
