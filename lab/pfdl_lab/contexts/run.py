"""The paper's experiment on images: train at 5:1, test at seven dominant ratios, method by method.

All methods of a seed see the same split, and those with the same backbone start from the same weights, so that
differences are paired. Hyper-parameters are fixed here; the epoch that is kept is chosen on validation images of the
training distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from pfdl._internal.files import write_atomically
from pfdl._internal.progress import counting
from pfdl._internal.runs import claim
from pfdl._internal.validation import check_choice
from pfdl._internal.workers import HERE, Execution
from pfdl.data import Shapes, make_split, open_images
from pfdl.data.manifest import read_groups
from pfdl.data.sources import ContextSource
from pfdl.vision.checkpoint import load_model
from pfdl.vision.evaluation import evaluate
from pfdl.vision.resume import shed_state
from pfdl.vision.seeds import accuracy_lines, read_split, save_split
from pfdl.vision.training import TrainingConfig, train
from pfdl_lab.contexts.rows import RATIOS, RESNET, ROWS
from pfdl_lab.grid import run_grid, unfinished
from pfdl_lab.images import StoredImages, image_store

TRAINING_RATIO = "5:1"


@dataclass(frozen=True)
class ContextsConfig:
    """How large the experiment is.

    Args:
        resnet: Which ResNet.
        small_stem: Whether it has the stem for small images.
        image_size: Height and width of the images.
        epochs: Passes over the training set.
        decay_every: Epochs after which the learning rate falls to a tenth.
        batch_size: Images per step.
        precision: ``"32"`` or ``"bf16"``.
        seeds: Paired repetitions.
        per_cell: Images of every class in every context, of the generated shapes.
        rows: Keys of the methods.
    """

    resnet: str = "resnet50"
    small_stem: bool = True
    image_size: int = 64
    epochs: int = 160
    decay_every: int = 80
    batch_size: int = 64
    precision: str = "32"
    seeds: int = 5
    per_cell: int = 100
    rows: tuple[str, ...] = tuple(ROWS)


FULL = ContextsConfig()
QUICK = ContextsConfig(
    resnet="resnet18", small_stem=False, image_size=32, epochs=3, decay_every=2, batch_size=16, seeds=2, per_cell=30
)


@dataclass(frozen=True)
class Images:
    """Where the images are.

    Args:
        folder: Images in contexts in any form that :func:`pfdl.data.open_images` takes, or None for the generated
            shapes.
        superclass: Top folder to use, as in NICO.
        on_bad_image: See :func:`pfdl.data.open_images`.
        group_by: See :func:`pfdl.data.manifest.read_groups`.
    """

    folder: str | None = None
    superclass: str | None = None
    on_bad_image: str = "error"
    group_by: str | None = None

    def open(self, config: ContextsConfig, on_progress: Callable[[int, int], None] | None = None) -> ContextSource:
        """Open the images; nothing is read yet."""
        if self.folder is None:
            return Shapes(config.per_cell)
        return open_images(
            self.folder,
            superclass=self.superclass,
            layout="class/context",
            on_bad_image=self.on_bad_image,
            on_progress=on_progress,
        )


def run(config: ContextsConfig, images: Images, output: Path, execution: Execution = HERE) -> pd.DataFrame:
    """Train and test what is missing, and write ``results.csv``.

    Args:
        config: How large the experiment is.
        images: Where the images are.
        output: The run folder, with ``splits`` (a manifest per seed), ``runs`` (a run folder per row and seed),
            ``cells`` (finished ones) and ``results.csv``. An interrupted run resumes, in the middle of a training too.
        execution: Where the trainings run, and how many at a time.

    Returns:
        One line per row, seed and test set, see :func:`run_task`.

    Raises:
        ValueError: If the images cannot be used, or the folder holds another run; other images, by whose content
            results are known, or more or fewer seeds or rows are the same run.
    """
    for row in config.rows:
        check_choice("the row", row, ROWS)
    settings = {**asdict(config), **asdict(images), **execution.settings}
    may_change = ("seeds", "rows", "folder", "on_bad_image", *execution.settings)
    with claim(output, "contexts", settings, may_change=may_change):
        return _run(config, images, output, execution)


def _run(config: ContextsConfig, images: Images, output: Path, execution: Execution) -> pd.DataFrame:
    groups = None if images.group_by is None else read_groups(images.group_by)
    with counting("checking images", execution.console) as show:
        source = images.open(config, show)
        splits = [_split(source, groups, output, seed) for seed in range(config.seeds)]
    how = {name: value for name, value in asdict(config).items() if name not in ("seeds", "rows")}
    tasks = [
        {"row": row, "seed": seed, "split": split, "config": how}
        for row in config.rows
        for seed, split in enumerate(splits)
    ]
    with image_store(output / "images") as store:
        if unfinished(tasks, output / "cells"):
            store(source, config.image_size, "all")
        function = partial(run_task, images=output / "images" / "all", output=output, device=execution.device)
        results = run_grid(function, tasks, output / "cells", execution)
    for folder in (output / "runs").glob("*/*"):
        shed_state(folder)
    columns = ["row", "seed", "test", "accuracy"]
    write_atomically(output / "results.csv", results[columns].to_csv(index=False))
    return results


def run_task(
    row: str, seed: int, split: str, config: Mapping[str, Any], *, images: Path, output: Path, device: str
) -> list[dict[str, Any]]:
    """Train one row with one seed and test it.

    Args:
        row: Key of the row.
        seed: Of the split and the training.
        split: Hash of the split, which tells results on other images apart.
        config: What :class:`ContextsConfig` takes, except ``seeds`` and ``rows``.
        images: Where the decoded images are, see :class:`pfdl_lab.images.StoredImages`.
        output: The run folder of the experiment.
        device: Where to compute.

    Returns:
        Lines of ``test`` and ``accuracy`` in percent: a ratio, ``all`` (the whole test side) or ``worst group``.
    """
    size = ContextsConfig(**config)
    manifest = read_split(output, seed)
    method = ROWS[row]
    is_resnet = method.backbone == RESNET
    training = TrainingConfig(
        backbone=size.resnet if is_resnet else method.backbone,
        objective=method.objective,
        contexts=method.contexts,
        image_size=size.image_size,
        small_stem=size.small_stem and is_resnet,
        epochs=size.epochs,
        decay_every=size.decay_every,
        batch_size=size.batch_size,
        precision=size.precision,
        seed=seed,
    )
    source = StoredImages(images)
    folder = output / "runs" / row / f"seed-{seed}-{split[:8]}"
    train(training, source, manifest, folder, device=device, devices=1, nodes=1)
    return accuracy_lines(evaluate(load_model(folder), source, manifest, device=device))


def _split(source: ContextSource, groups: Mapping[str, str] | None, output: Path, seed: int) -> str:
    """Write the split of a seed and return its hash."""
    manifest = make_split(source, ratio=TRAINING_RATIO, seed=seed, groups=groups)
    missing = set(RATIOS) - {name.removeprefix("test-") for name in manifest.set_names}
    if missing:
        raise ValueError(" ".join(["the table cannot be made with these images.", *manifest.parameters["notes"]]))
    return save_split(manifest, output, seed)
