"""SpuCoMNIST: what training reaches with contexts that pfdl infers, and with those of JTT, SPARE
and EIIL.

All rows train the same LeNet from the same start on the same images. *ours* is
``pfdl.infer_contexts`` and the sampler: the network is trained with each strength of ``POWERS``, of
which 0 is plain training, and ``choose_balance`` takes one by held-out images. ``ours, full`` draws
all groups equally often, as does ``true``, with the true contexts; ``classes`` draws classes
equally often. The peers' groups are those of ``pfdl.contexts.find_by_…``, from the plain training
after ``FIRST_EPOCHS`` epochs. They draw by their own rule, in the rows ``… sampler`` all groups
equally often, and in the rows ``… chosen`` with a strength that is chosen as ours is.

``last`` is after the last epoch. ``chosen`` is after the epoch with the best average over groups of
held-out images of the *training* distribution, wrong labels included, by the groups that the row
itself has inferred there: no true group is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pfdl import image_statistics
from pfdl._internal.validation import check_choice
from pfdl.contexts import (
    Proposal,
    choose_balance,
    find_by_eiil,
    find_by_jtt,
    find_by_spare,
    find_contexts,
    group_accuracy,
    group_report,
)
from pfdl.data import SpuCoMNIST
from pfdl.data.spuco_mnist import MAGNITUDES
from pfdl.runs import Run, claim
from pfdl.vision import TrainingConfig
from pfdl.vision.features import run_model
from pfdl_lab.digits import find_digits
from pfdl_lab.grid import finish, run_grid
from pfdl_lab.images.networks import lenet
from pfdl_lab.pairing import paired
from pfdl_lab.report.blocks import Cell, Section, Table, TableLine
from pfdl_lab.report.reading import Columns
from pfdl_lab.statistics import difference_cell, mean_cell
from pfdl_lab.training import Progress, Samples, train_row
from pfdl_lab.workers import IN_SEQUENCE, Execution

KIND = "spuco-mnist"
TITLE = "SpuCoMNIST, beside JTT, SPARE and EIIL"
EPOCHS = 10
FIRST_EPOCHS = 3
POWERS = (0.0, 0.5, 1.0)
COMPARED = ("chosen_average", "chosen_worst")
MEASURES = (*COMPARED, "last_average", "last_worst")
TESTED = 5_000
PEERS: dict[str, Callable[..., Proposal]] = {
    "jtt": find_by_jtt,
    "spare": find_by_spare,
    "eiil": find_by_eiil,
}
PLAIN = ("erm", "classes", "ours", "ours, full", "true")
ROWS = (*PLAIN, *map("".join, product(PEERS, ("", " sampler", " chosen"))))
COLUMNS = Columns(words=("magnitude", "row"), numbers=("seed", *MEASURES))


@dataclass(frozen=True)
class SpuCoConfig:
    """Which part of the study to run.

    Args:
        magnitudes: Difficulties of the benchmark.
        rows: Rows of the table.
        seeds: Draws of each difficulty.
        first_seed: The first seed; the others count up.
        strength: The share of a class that has its usual colour.
        label_noise: The share of wrong labels.
        images: Training images; a quarter as many are held out.

    Raises:
        ValueError: If there is no such difficulty or row.
    """

    magnitudes: Sequence[str] = tuple(MAGNITUDES)
    rows: Sequence[str] = ROWS
    seeds: int = 6
    first_seed: int = 101
    strength: float = 0.9
    label_noise: float = 0.05
    images: int = 5_000

    def __post_init__(self) -> None:
        for magnitude in self.magnitudes:
            check_choice("the magnitude", magnitude, MAGNITUDES)
        for row in self.rows:
            check_choice("the row", row, ROWS)


def run(
    config: SpuCoConfig,
    output: Path,
    *,
    folder: Path | None,
    execution: Execution = IN_SEQUENCE,
) -> pd.DataFrame:
    """Train what is missing, and write ``results.csv``.

    Args:
        config: Which part of the study to run.
        output: The run folder.
        folder: Folder of the MNIST files, or None for scikit-learn's digits.
        execution: Where the rows are trained, and how many at a time.

    Returns:
        One line per difficulty, draw and row.
    """
    digits = find_digits(folder).name
    settings = {**asdict(config), "digits": digits, "command": execution.command}
    may_change = ("magnitudes", "seeds", "first_seed", "rows", "command")
    how = {name: settings[name] for name in ("strength", "label_noise", "images", "digits")}
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    tasks = [
        {"magnitude": magnitude, "seed": seed, "row": row, **how}
        for magnitude, seed, row in product(config.magnitudes, seeds, config.rows)
    ]
    with claim(output, KIND, settings, may_change=may_change):
        results = run_grid(partial(run_task, folder=folder), tasks, output / "cells", execution)
        finish(results, output, "cells")
    return results


def run_task(row: str, *, folder: Path | None, digits: str, **of_draw: Any) -> list[dict[str, Any]]:
    """Train one row on one draw, and test its last epoch and the one that held-out images choose;
    the other arguments are those of :class:`Draw`.
    """
    return [open_draw(folder, **of_draw).run(row)]


class Groups(NamedTuple):
    """The context of each training and held-out image, and how often each is drawn by the method's
    own rule.
    """

    contexts: NDArray[np.intp]
    draws: NDArray[np.float64] | None = None


class Answers(NamedTuple):
    """The scores that a network gives after an epoch to training and held-out images, and to test
    images.
    """

    known: Tensor
    test: Tensor


Training = list[Answers]  # by the epoch


class Draw:
    """One draw of the data, the held-out images last.

    Args:
        folder: Folder of the MNIST files, or None.
        magnitude: The difficulty.
        strength: The share of a class that has its usual colour.
        label_noise: The share of wrong labels.
        images: Training images.
        seed: The seed.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        magnitude: str,
        strength: float,
        label_noise: float,
        images: int,
        seed: int,
    ) -> None:
        data = SpuCoMNIST(
            find_digits(folder).uncut,
            magnitude=magnitude,
            strength=strength,
            label_noise=label_noise,
            seed=seed,
            max_train=images + images // 4,
        )
        self.size = images
        self.seed = seed
        self.pictures = data.train.images
        self.images = _flat(self.pictures)
        self.labels = data.train.labels
        self.truth = data.train.contexts.numpy()
        self.test = Samples(
            _flat(data.test.images[:TESTED]),
            data.test.labels[:TESTED],
            data.test.contexts[:TESTED],
        )

    def train(
        self,
        sampler: str,
        contexts: NDArray[np.intp],
        power: float = 1.0,
        draws: NDArray[np.float64] | None = None,
    ) -> Training:
        """Train the network from its start with a sampler of pfdl."""
        config = TrainingConfig(
            objective="erm",
            epochs=EPOCHS,
            decay_every=EPOCHS,
            batch_size=64,
            learning_rate=0.02,
            weight_decay=5e-4,
            sampler=sampler,  # type: ignore[arg-type]
            sampler_power=power,
            augment="none",
            precision="32",
            seed=self.seed,
        )
        torch.manual_seed(self.seed)
        model = lenet(self.pictures.shape[1:])
        known = torch.from_numpy(contexts)[: self.size]
        samples = Samples(self.images[: self.size], self.labels[: self.size], known)
        answers = Training()

        def look(_: Progress) -> None:
            scores = [run_model(model, inputs)[0] for inputs in (self.images, self.test.inputs)]
            answers.append(Answers(*scores))

        weights = None if draws is None else torch.from_numpy(draws[: self.size])
        train_row(config, model, samples, known, draws=weights, after_epoch=look)
        return answers

    @cache  # noqa: B019, two draws are kept
    def plain(self) -> Training:
        """Train without a balance."""
        return self.train("shuffle", np.zeros(len(self.labels), dtype=np.intp))

    @cache  # noqa: B019
    def balanced(self, name: str, power: float) -> Training:
        """Train with the groups of a method drawn with a strength, of which 0 is plain training."""
        contexts = self.groups(name).contexts
        if power == 0.0:
            return self.plain()
        if name == "classes":
            return self.train("classes", contexts, power)
        if len(np.unique(contexts)) == 1:  # nothing to balance
            return self.plain()
        return self.train("groups", contexts, power)

    def trainings(self, row: str) -> dict[float, Training]:
        """Return the trainings of a row by the strength; a peer's own rule counts as 1."""
        name, how = method_and_rule(row)
        if name == "erm":
            return {0.0: self.plain()}
        groups = self.groups(name)
        if groups.draws is not None and not how:
            return {1.0: self.train("shuffle", groups.contexts, draws=groups.draws)}
        powers = POWERS if row == "ours" or how == "chosen" else (1.0,)
        return {power: self.balanced(name, power) for power in powers}

    @cache  # noqa: B019
    def groups(self, name: str) -> Groups:
        """Return what a method infers of all images."""
        if name == "true":
            return Groups(self.truth)
        if name in ("erm", "classes"):
            return Groups(np.zeros(len(self.labels), dtype=np.intp))
        if name == "ours":
            found = find_contexts(image_statistics(self.pictures), self.labels, seed=self.seed)
            return Groups(found.contexts)
        early = self.plain()[FIRST_EPOCHS - 1].known
        peer = PEERS[name](early, self.labels)
        # SpuCo's JTT draws right and wrong samples equally often
        errors = 1.0 / np.bincount(peer.contexts)[peer.contexts]
        return Groups(peer.contexts, errors if name == "jtt" else peer.draws)

    def run(self, row: str) -> dict[str, Any]:
        """Return what a row reaches: after the last epoch, and at the epoch and the strength that
        held-out images choose.
        """
        groups = self.groups(method_and_rule(row)[0])
        labels = self.labels[self.size :]
        contexts = groups.contexts[self.size :]
        trainings = self.trainings(row)
        chosen = {}
        for power, training in trainings.items():
            averages = [
                group_accuracy(
                    answers.known[self.size :], labels, contexts, min_samples=5
                ).average_over_groups
                for answers in training
            ]
            chosen[power] = int(np.argmax(averages))
        scores = {
            power: trainings[power][epoch].known[self.size :] for power, epoch in chosen.items()
        }
        power = choose_balance(scores, labels, contexts)
        found: dict[str, Any] = {}
        for when, epoch in {"last": EPOCHS - 1, "chosen": chosen[power]}.items():
            answers = trainings[power][epoch].test
            accuracy = group_accuracy(answers, self.test.labels, self.test.contexts)
            found[f"{when}_worst"] = round(100 * accuracy.worst_group.accuracy, 2)
            found[f"{when}_average"] = round(100 * accuracy.average_over_groups, 2)
        report = group_report(
            self.labels[: self.size], groups.contexts[: self.size], self.truth[: self.size]
        )
        return {
            **found,
            "chosen_epoch": chosen[power] + 1,
            "contexts": len(np.unique(groups.contexts[: self.size])),
            "ari": round(report.ari, 3),
            "power": power,
        }


@lru_cache(maxsize=2)
def open_draw(folder: Path | None, **of_draw: Any) -> Draw:
    """Return a draw, kept for the next row of the same process."""
    return Draw(folder, **of_draw)


def _flat(images: Tensor) -> Tensor:
    return images.flatten(1).float() / 255


def method_and_rule(row: str) -> tuple[str, str]:
    """Return whose groups a row has, and how they are drawn; nothing for the method's own rule."""
    name, _, how = row.replace(",", "").partition(" ")
    return name, how


def build(run: Run, results: pd.DataFrame) -> Section:
    """Build the section of one run: accuracies, and how far ours is ahead."""
    names = results["table"] if "table" in results else pd.Series("", results.index)
    tables = []
    for (name, magnitude), part in results.groupby([names, "magnitude"], sort=False):
        caption = f"{magnitude}, {name}" if name else str(magnitude)
        tables.append(_table(caption, part))
    return Section(TITLE, tables)


def _table(caption: str, part: pd.DataFrame) -> Table:
    by_row = {str(row): lines.set_index("seed") for row, lines in part.groupby("row")}
    ours = by_row.get("ours")
    lines = []
    for row in [row for row in ROWS if row in by_row]:
        found = by_row[row]
        cells: list[Cell] = [str(len(found))]
        cells += [mean_cell(found[measure], 1) for measure in MEASURES]
        if ours is not None:
            ahead = [paired(ours[measure], found[measure]) for measure in COMPARED]
            cells += [difference_cell(difference, 1) for difference in ahead]
        lines.append(TableLine(row, tuple(cells)))
    columns = ["draws", *(measure.replace("_", " ") for measure in MEASURES)]
    if ours is not None:
        columns += [f"ours − row, {measure.replace('_', ' ')}" for measure in COMPARED]
    note = "Average over the groups and worst group in percent, at the chosen and the last epoch."
    return Table(f"Accuracy over groups, {caption}", "row", columns, lines, note=note)
