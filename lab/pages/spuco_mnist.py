"""SpuCoMNIST: what training reaches with contexts that pfdl infers, and with those of JTT, SPARE
and EIIL.

    python lab/pages/spuco_mnist.py --mnist DIR --magnitude medium --strength 0.9 --label-noise 0.05
    python lab/pages/spuco_mnist.py --mnist DIR --magnitude medium --strength 0.95

All rows train the same LeNet from the same start on the same images. *ours* is
``pfdl.infer_contexts`` and the sampler: the network is trained with each strength of ``POWERS``, of
which 0 is plain training, and ``choose_balance`` takes one by held-out images. ``ours, full`` draws
all groups equally often, as does ``true``, with the true contexts; ``classes`` draws classes
equally often. The peers' groups are those of ``pfdl.contexts.find_by_…``, which are SpuCo's sample
by sample, from the plain training after ``FIRST_EPOCHS`` epochs. They draw by their own rule (JTT:
SpuCo's, right and wrong samples equally often), in the rows ``… sampler`` by our sampler, class ×
context, all groups equally often, and in the rows ``… chosen`` by our sampler with a strength
chosen as ours is. ``last`` is after the last epoch. ``chosen`` is after the epoch with the best
average over groups of held-out images of the *training* distribution, wrong labels included, by the
groups that the row itself has inferred there: no true group is seen. Seconds are CPU time: of the
inference, with the short training that the peers' needs, and of the trainings of the row.
``effective_share`` is of the draws at the strength used. A line is written for every finished row;
what is in the file already is not run again.
"""

from __future__ import annotations

import argparse
from copy import deepcopy
from functools import cache
from itertools import product
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Sampler, WeightedRandomSampler

from pfdl import context_sampler, image_statistics
from pfdl.contexts import choose_balance, find_contexts, group_accuracy, group_report
from pfdl.contexts.finders import get_finder
from pfdl.data import SpuCoMNIST
from pfdl_lab.digits import find_digits
from pfdl_lab.images.networks import lenet
from pfdl_lab.pairing import paired
from pfdl_lab.report.markdown import markdown_table
from pfdl_lab.statistics import difference_cell, judge

RESULTS = Path(__file__).parents[2] / "docs" / "results"
OWN = ["jtt", "spare", "eiil"]
CHOSEN = [f"{peer} chosen" for peer in OWN]
ROWS = [
    "erm",
    "classes",
    "ours",
    "ours, full",
    "true",
    *(a + b for a in OWN for b in ("", " sampler", " chosen")),
]
KEYS = ("magnitude", "strength", "label_noise", "images", "seed", "row")
EPOCHS, FIRST_EPOCHS, BATCH, RATE = 10, 3, 64, 0.02
POWERS = (0.0, 0.5, 1.0)
MEASURES = ("chosen_average", "last_average", "chosen_worst", "last_worst")
TESTED = 5_000


class Groups(NamedTuple):
    """The context of each training and held-out image, and how often each is drawn by the method's
    own rule.
    """

    contexts: NDArray[np.intp]
    draws: NDArray[np.float64] | None = None
    seconds: float = 0.0


class Training(NamedTuple):
    """The network after every epoch, and how long the training took."""

    models: list[nn.Module]
    seconds: float


class Draw:
    """One draw of the data, the held-out images last."""

    def __init__(self, settings: argparse.Namespace, seed: int) -> None:
        held_out = settings.images // 4
        data = SpuCoMNIST(
            find_digits(settings.mnist).uncut,
            magnitude=settings.magnitude,
            strength=settings.strength,
            label_noise=settings.label_noise,
            seed=seed,
            max_train=settings.images + held_out,
        )
        self.images = data.train.images.flatten(1).float() / 255
        self.labels, self.truth = data.train.labels, data.train.contexts.numpy()
        self.size = settings.images
        self.test = data.test.images[:TESTED].flatten(1).float() / 255
        self.test_labels, self.test_contexts = (
            data.test.labels[:TESTED],
            data.test.contexts[:TESTED],
        )
        self.raw, self.shape = data.train.images, data.train.images.shape[1:]
        self.seed = seed

    def train(self, sampler: Sampler[int] | None) -> Training:
        """Train the network from its start; without a sampler every image is drawn once in an
        epoch.
        """
        begin = process_time()
        torch.manual_seed(self.seed)
        model = lenet(self.shape)
        optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9, weight_decay=5e-4)
        after = []
        for epoch in range(EPOCHS):
            generator = torch.Generator().manual_seed(1000 * self.seed + epoch)
            order = (
                torch.randperm(self.size, generator=generator)
                if sampler is None
                else torch.tensor(list(sampler))
            )
            for rows in order.split(BATCH):
                optimizer.zero_grad()
                F.cross_entropy(model(self.images[rows]), self.labels[rows]).backward()
                optimizer.step()
            after.append(deepcopy(model))
        return Training(after, process_time() - begin)

    @cache  # noqa: B019, the draw lives as long as the script
    def balanced(self, name: str, power: float) -> Training:
        """Train with the sampler and the groups of a method; with a power of 0 that is plain
        training, for all.
        """
        if power == 0.0:
            return self.train(None) if name == "erm" else self.balanced("erm", 0.0)
        # One context means for the sampler that nothing is balanced; as contexts, classes are drawn
        # equally often.
        contexts = self.labels.numpy() if name == "classes" else self.groups(name).contexts
        sampler = context_sampler(
            self.labels[: self.size], contexts[: self.size], power=power, seed=self.seed
        )
        return self.train(sampler)

    def trainings(self, row: str) -> dict[float, Training]:
        """Return the trainings of a row by the power of the sampler; a peer's own rule counts as
        1.
        """
        name, how = method_and_rule(row)
        groups = self.groups(name)
        if groups.draws is not None and not how:
            generator = torch.Generator().manual_seed(self.seed)
            sampler = WeightedRandomSampler(
                groups.draws[: self.size], self.size, generator=generator
            )
            return {1.0: self.train(sampler)}
        if len(np.unique(groups.contexts)) == 1 and name != "classes":
            return {0.0: self.balanced(name, 0.0)}
        return {
            power: self.balanced(name, power)
            for power in (POWERS if row == "ours" or how == "chosen" else (1.0,))
        }

    @cache  # noqa: B019
    def groups(self, name: str) -> Groups:
        """Return what a method infers of all images."""
        if name == "true":
            return Groups(self.truth)
        if name in ("erm", "classes"):
            return Groups(np.zeros(len(self.labels), dtype=np.intp))
        begin = process_time()
        if name == "ours":
            found = find_contexts(image_statistics(self.raw), self.labels, seed=self.seed)
            print(f"  seed {self.seed}: {found.sentence}", flush=True)
            return Groups(found.contexts, seconds=process_time() - begin)
        plain = self.balanced("erm", 0.0)
        begin = process_time()
        peer = get_finder(name)(outputs(plain.models[FIRST_EPOCHS - 1], self.images), self.labels)
        seconds = process_time() - begin + plain.seconds * FIRST_EPOCHS / EPOCHS
        draws = 1.0 / np.bincount(peer.contexts)[peer.contexts] if name == "jtt" else peer.draws
        return Groups(peer.contexts, draws, seconds)

    def run(self, row: str) -> dict[str, object]:
        """Train with the groups of a row and test its last epoch and the one that held-out images
        choose.
        """
        name, how = method_and_rule(row)
        groups, trainings = self.groups(name), self.trainings(row)
        images, known = (
            self.images[self.size :],
            (self.labels[self.size :], groups.contexts[self.size :]),
        )
        scores = {
            power: [outputs(model, images) for model in training.models]
            for power, training in trainings.items()
        }
        chosen = {
            power: int(
                np.argmax(
                    [
                        group_accuracy(one, *known, min_samples=5).average_over_groups
                        for one in by_epoch
                    ]
                )
            )
            for power, by_epoch in scores.items()
        }
        power = choose_balance(
            {power: scores[power][epoch] for power, epoch in chosen.items()}, *known
        )
        models = trainings[power].models
        measured = {}
        for when, model in {"last": models[-1], "chosen": models[chosen[power]]}.items():
            found = group_accuracy(outputs(model, self.test), self.test_labels, self.test_contexts)
            measured[f"{when}_worst"] = round(100 * found.worst_group.accuracy, 2)
            measured[f"{when}_average"] = round(100 * found.average_over_groups, 2)
        report = group_report(
            self.labels[: self.size], groups.contexts[: self.size], self.truth[: self.size]
        )
        group = (self.labels.numpy() * (groups.contexts.max() + 1) + groups.contexts)[: self.size]
        draws = (
            np.bincount(group)[group] ** -power
            if how or groups.draws is None
            else groups.draws[: self.size]
        )
        return {
            **measured,
            "chosen_epoch": chosen[power] + 1,
            "contexts": len(np.unique(groups.contexts[: self.size])),
            "ari": round(report.ari, 3),
            "minority_precision": round(report.minority_precision, 3),
            "minority_recall": round(report.minority_recall, 3),
            "power": power,
            "effective_share": round(draws.sum() ** 2 / (draws**2).sum() / self.size, 3),
            "inference_seconds": round(groups.seconds, 1),
            "training_seconds": round(sum(training.seconds for training in trainings.values()), 1),
        }


def method_and_rule(row: str) -> tuple[str, str]:
    """Return whose groups a row has, and how they are drawn; nothing for the method's own rule."""
    name, _, how = row.replace(",", "").partition(" ")
    return name, how


def outputs(model: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(batch) for batch in images.split(1024)])


def tables(path: Path) -> str:
    """Return the means over draws of a CSV file as Markdown, and the paired differences of ours to
    the other rows.
    """
    results, rows = pd.read_csv(path), []
    for setting, part in results.groupby(list(KEYS[:4])):
        ours = part[part["row"] == "ours"].set_index("seed")
        for row in ROWS:
            lines = part[part["row"] == row].set_index("seed")
            if len(lines):
                difference = (ours["chosen_average"] - lines["chosen_average"]).dropna()
                means = [f"{lines[one].mean():.1f} ± {lines[one].sem():.1f}" for one in MEASURES]
                behind = (
                    "" if row == "ours" else f"{difference.mean():+.1f} ± {difference.sem():.1f}"
                )
                seconds = [
                    f"{lines[one].mean():.0f}" for one in ("inference_seconds", "training_seconds")
                ]
                rows.append(
                    [f"{setting[0]} {setting[1]}", row, len(lines), *means, behind, *seconds]
                )
    heads = [
        "setting",
        "row",
        "draws",
        "average, chosen",
        "average, last",
        "worst, chosen",
        "worst, last",
    ]
    heads += ["ours − row, average, chosen", "inference, s", "training, s"]
    return markdown_table(heads, rows)


def comparisons(path: Path) -> str:
    """Return the tests of ours by Holm's method as Markdown: against ``… chosen``, else against ERM
    and the peers.
    """
    results, found = pd.read_csv(path), {}
    rivals = CHOSEN if set(CHOSEN) <= set(results["row"]) else ["erm", *OWN]
    for setting, part in results.groupby("magnitude"):
        by_row = {row: lines.set_index("seed") for row, lines in part.groupby("row")}
        for measure, rival in product(("chosen_average", "chosen_worst"), rivals):
            found[setting, measure, rival] = paired(by_row["ours"][measure], by_row[rival][measure])
    judged = dict(zip(found, judge(list(found.values())), strict=True))
    rows = []
    for setting, measure in dict.fromkeys(key[:2] for key in found):
        keys = [(setting, measure, rival) for rival in rivals]
        cells = [
            f"{difference_cell(found[key], 1)}, Holm {judged[key].adjusted:.2g}" for key in keys
        ]
        rows.append([setting, measure.removeprefix("chosen_"), *cells])
    first, *others = (
        "".join((name.upper(), *rest)) for name, *rest in (rival.partition(" ") for rival in rivals)
    )
    return markdown_table(
        ["difficulty", "measure", f"ours − {first}", *(f"− {other}" for other in others)], rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--mnist", type=Path, help="folder of the MNIST files; else scikit-learn's digits"
    )
    parser.add_argument("--magnitude", default="medium")
    parser.add_argument("--strength", type=float, default=0.9)
    parser.add_argument("--label-noise", type=float, default=0.0)
    parser.add_argument(
        "--images", type=int, default=5_000, help="training images; a quarter as many are held out"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[11, 12, 13, 14, 15])
    parser.add_argument("--rows", nargs="+", default=list(ROWS))
    parser.add_argument(
        "--out", type=Path, help="by default runs/spuco-mnist.csv, or runs/spuco-digits.csv"
    )
    parser.add_argument(
        "--compare", action="store_true", help="train nothing; test ours against ERM and the peers"
    )
    settings = parser.parse_args()
    settings.out = settings.out or Path(
        "runs", f"spuco-{'mnist' if settings.mnist else 'digits'}.csv"
    )
    if (
        not settings.mnist
        and not settings.compare
        and settings.out.resolve().is_relative_to(RESULTS)
    ):
        parser.error(
            "the files in docs/results are of MNIST; give its folder by --mnist, or another --out."
        )
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    lines = pd.read_csv(settings.out).to_dict("records") if settings.out.exists() else []
    made = {tuple(line[key] for key in KEYS) for line in lines}
    for seed in () if settings.compare else settings.seeds:
        setting = (
            settings.magnitude,
            settings.strength,
            settings.label_noise,
            settings.images,
            seed,
        )
        rows = [row for row in settings.rows if (*setting, row) not in made]
        draw = Draw(settings, seed) if rows else None
        for row in rows:
            assert draw is not None
            lines.append({**dict(zip(KEYS, (*setting, row), strict=True)), **draw.run(row)})
            pd.DataFrame(lines).to_csv(settings.out, index=False)
            print(", ".join(f"{key} {value}" for key, value in lines[-1].items()), flush=True)
    print(tables(settings.out))
    if settings.compare:
        print(comparisons(settings.out))


if __name__ == "__main__":
    main()
