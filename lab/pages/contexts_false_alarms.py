"""How often does ``pfdl.infer_contexts`` believe in contexts where there are none, and what would
they do?

    python lab/pages/contexts_false_alarms.py --seeds 20
    python lab/pages/contexts_false_alarms.py --seeds 20 --store DIR   # as
    lab/pages/contexts_pretrained.py leaves it

Every kind of data here has classes, and no contexts that go with them. A line of the CSV is one
draw: how many contexts were accepted (1: none), how they were found, the effective sample size of
their weights as a share of n, which says how much balancing them would change, and the largest gain
of any way less three standard errors, in points, of which more than 2 are needed, or 1 within
classes. The script prints a line for each kind. A draw that the CSV has is not made again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor

from pfdl.contexts import find_contexts
from pfdl.contexts.confirmation import ERRORS_SURE
from pfdl.data.context_images import StoredImages
from pfdl.objectives.weightings import Balance
from pfdl_lab.images.networks import FEATURES
from pfdl_lab.report.markdown import markdown_table

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "contexts-false-alarms.csv"
SAMPLES, COLUMNS, CLASSES = 2_000, 64, 4
Drawn = tuple[NDArray[np.float64], NDArray[np.int64]]


def noise(rng: np.random.Generator) -> Drawn:
    """Draw features that say nothing about the class."""
    return rng.normal(size=(SAMPLES, COLUMNS)), rng.integers(CLASSES, size=SAMPLES)


def classes(rng: np.random.Generator, given: NDArray[np.int64] | None = None) -> Drawn:
    """Draw four classes around means of their own, which overlap a little."""
    labels = rng.integers(CLASSES, size=SAMPLES) if given is None else given
    return (
        rng.normal(size=(SAMPLES, COLUMNS)) + 0.35 * rng.normal(size=(CLASSES, COLUMNS))[labels],
        labels,
    )


def rare_classes(rng: np.random.Generator) -> Drawn:
    """Draw the same, nine of ten samples in two of the classes."""
    return classes(rng, rng.choice(CLASSES, size=SAMPLES, p=[0.6, 0.3, 0.07, 0.03]))


def correlated(rng: np.random.Generator) -> Drawn:
    """Draw features that all follow five hidden ones, whatever the class."""
    features, labels = classes(rng)
    return features + rng.normal(size=(SAMPLES, 5)) @ rng.normal(size=(5, COLUMNS)), labels


def heavy_tails(rng: np.random.Generator) -> Drawn:
    """Draw features with a few enormous values, from Student's t with two degrees of freedom."""
    features, labels = classes(rng)
    return features + rng.standard_t(2, size=(SAMPLES, COLUMNS)), labels


def clusters(rng: np.random.Generator) -> Drawn:
    """Draw three plain clusters that are as frequent in every class: contexts that do not go with
    the class.
    """
    features, labels = classes(rng)
    return features + 2 * rng.normal(size=(3, COLUMNS))[rng.integers(3, size=SAMPLES)], labels


def subclasses(rng: np.random.Generator) -> Drawn:
    """Draw classes of three kinds each, 80, 15 and 5 % of it, that no other class has."""
    labels = rng.integers(CLASSES, size=SAMPLES)
    kinds = rng.choice(3, size=SAMPLES, p=[0.80, 0.15, 0.05])
    return classes(rng, labels)[0] + rng.normal(size=(CLASSES, 3, COLUMNS))[labels, kinds], labels


def digits(rng: np.random.Generator) -> Drawn:
    """Draw a part of scikit-learn's digits."""
    images, labels = load_digits(return_X_y=True)
    kept = rng.permutation(len(labels))[:1_500]
    return images[kept], labels[kept]


def shuffled_digits(rng: np.random.Generator) -> Drawn:
    """Draw the same with labels in random order."""
    images, labels = digits(rng)
    return images, rng.permutation(labels)


def pretrained(rng: np.random.Generator, folder: Path, per_group: int = 60) -> Drawn:
    """Draw pretrained features of PACS, as many of every class in every style: contexts that do not
    go with it.
    """
    images = StoredImages(folder, FEATURES)
    names, number = np.unique(
        [f"{one.class_name}/{one.context}" for one in images.samples], return_inverse=True
    )
    classes = np.unique([name.partition("/")[0] for name in names], return_inverse=True)[1]
    rows = [
        rng.permutation(np.flatnonzero(number == group))[:per_group] for group in range(len(names))
    ]
    kept = rng.permutation(np.concatenate(rows))
    paths = [images.samples[row].path for row in kept]
    return images.take(paths).double().numpy(), classes[number[kept]].astype(np.int64)


def one_style(rng: np.random.Generator, folder: Path, samples: int = 1_200) -> Drawn:
    """Draw pretrained features of one style of PACS, another for each seed: no contexts."""
    images = StoredImages(folder, FEATURES)
    style = rng.choice(sorted({one.context for one in images.samples}))
    mine = [one for one in images.samples if one.context == style]
    kept = [mine[row] for row in rng.permutation(len(mine))[:samples]]
    labels = np.unique([one.class_name for one in kept], return_inverse=True)[1]
    return images.take([one.path for one in kept]).double().numpy(), labels.astype(np.int64)


PRETRAINED: dict[str, Callable[[np.random.Generator, Path], Drawn]] = {
    "pretrained features, styles alike in all classes": pretrained,
    "pretrained features, one style": one_style,
}
KINDS: dict[str, Callable[[np.random.Generator], Drawn]] = {
    "noise": noise,
    "classes": classes,
    "rare classes": rare_classes,
    "correlated features": correlated,
    "heavy tails": heavy_tails,
    "clusters in every class": clusters,
    "subclasses": subclasses,
    "digits": digits,
    "digits, labels shuffled": shuffled_digits,
}


def measure(kind: str, seed: int, store: Path | None) -> dict[str, object]:
    rng = np.random.default_rng((seed, [*KINDS, *PRETRAINED].index(kind)))
    features, labels = KINDS[kind](rng) if store is None else PRETRAINED[kind](rng, store)
    found = find_contexts(features, labels, seed=seed)
    balance, groups = Balance(), (torch.tensor(labels), torch.tensor(found.contexts))
    balance.prepare(*groups)
    balance(*groups)
    share = float(cast(Tensor, balance.effective_share))
    surest = max(
        (100 * (one.gain - ERRORS_SURE * one.gain_error) for one in found.tried if one.gain > 0),
        default=0.0,
    )
    return {
        "kind": kind,
        "seed": seed,
        "contexts": found.number,
        "method": found.method,
        "effective_share": share,
        "sure_gain": surest,
    }


def tables(path: Path = RESULTS) -> str:
    rows = []
    for kind, part in pd.read_csv(path).groupby("kind", sort=False):
        rows.append(
            [
                kind,
                len(part),
                int((part["contexts"] > 1).sum()),
                f"{part['effective_share'].min():.3f}",
            ]
        )
    heads = ["data without contexts", "draws", "contexts accepted", "least effective share of n"]
    return markdown_table(heads, rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20, help="draws of each kind")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--store", type=Path, help="features of PACS; draws of these instead of the other kinds"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    settings = parser.parse_args()
    lines = pd.read_csv(settings.out).to_dict("records") if settings.out.exists() else []
    made = {(line["kind"], line["seed"]) for line in lines}
    for seed in range(settings.first_seed, settings.first_seed + settings.seeds):
        for kind in KINDS if settings.store is None else PRETRAINED:
            if (kind, seed) not in made:
                lines.append(measure(kind, seed, settings.store))
                print(kind, seed, lines[-1]["contexts"], flush=True)
                pd.DataFrame(lines).round(4).to_csv(settings.out, index=False)
    print(tables(settings.out))


if __name__ == "__main__":
    main()
