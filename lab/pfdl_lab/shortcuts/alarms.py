"""How often are contexts accepted where there are none?

    python -m pfdl_lab.shortcuts.alarms --seeds 20
    python -m pfdl_lab.shortcuts.alarms --seeds 15 --cache runs/features   # pretrained, of PACS

Every kind of data here has classes, and no contexts that go with them.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from pfdl.contexts import find_contexts

SAMPLES, COLUMNS, CLASSES = 2_000, 64, 4
Drawn = tuple[NDArray[np.float64], NDArray[np.intp]]


def noise(rng: np.random.Generator) -> Drawn:
    """Draw features that say nothing about the class."""
    return rng.normal(size=(SAMPLES, COLUMNS)), rng.integers(CLASSES, size=SAMPLES)


def classes(rng: np.random.Generator, given: NDArray[np.intp] | None = None) -> Drawn:
    """Draw four classes around means of their own, which overlap a little."""
    labels = rng.integers(CLASSES, size=SAMPLES) if given is None else given
    means = 0.35 * rng.normal(size=(CLASSES, COLUMNS))
    return rng.normal(size=(SAMPLES, COLUMNS)) + means[labels], labels


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
    """Draw three plain clusters that are as frequent in every class."""
    features, labels = classes(rng)
    centres = 2 * rng.normal(size=(3, COLUMNS))
    return features + centres[rng.integers(3, size=SAMPLES)], labels


def subclasses(rng: np.random.Generator) -> Drawn:
    """Draw classes of three kinds each, 80, 15 and 5 % of it, that no other class has."""
    labels = rng.integers(CLASSES, size=SAMPLES)
    kinds = rng.choice(3, size=SAMPLES, p=[0.80, 0.15, 0.05])
    features, _ = classes(rng, labels)
    return features + rng.normal(size=(CLASSES, 3, COLUMNS))[labels, kinds], labels


def digits(rng: np.random.Generator) -> Drawn:
    """Draw a part of scikit-learn's digits."""
    images, labels = load_digits(return_X_y=True)
    kept = rng.permutation(len(labels))[:1_500]
    return images[kept], labels[kept]


def shuffled_digits(rng: np.random.Generator) -> Drawn:
    """Draw the same with labels in random order."""
    images, labels = digits(rng)
    return images, rng.permutation(labels)


def styles_alike(rng: np.random.Generator, cache: Path) -> Drawn:
    """Draw features of PACS, as many of every class in every style."""
    features, names = _pacs(cache)
    group = np.unique([f"{name[1]}/{name[2]}" for name in names], return_inverse=True)[1]
    rows = [rng.permutation(np.flatnonzero(group == one))[:60] for one in np.unique(group)]
    kept = rng.permutation(np.concatenate(rows))
    return features[kept], np.unique(names[kept, 1], return_inverse=True)[1]


def one_style(rng: np.random.Generator, cache: Path) -> Drawn:
    """Draw features of one style of PACS, another for each seed."""
    features, names = _pacs(cache)
    kept = np.flatnonzero(names[:, 2] == rng.choice(np.unique(names[:, 2])))
    kept = rng.permutation(kept)
    return features[kept], np.unique(names[kept, 1], return_inverse=True)[1]


MADE: dict[str, Callable[[np.random.Generator], Drawn]] = {
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

PRETRAINED: dict[str, Callable[[np.random.Generator, Path], Drawn]] = {
    "pretrained, styles alike in all classes": styles_alike,
    "pretrained, one style": one_style,
}


def run(seeds: Sequence[int], cache: Path | None = None) -> pd.DataFrame:
    """Find contexts in every draw, and return a line for each.

    Args:
        seeds: The draws of each kind.
        cache: Folder with pacs.npz, to draw pretrained features in place of made ones.
    """
    kinds: dict[str, Callable[[np.random.Generator], Drawn]] = MADE
    if cache is not None:
        kinds = {name: _of_cache(make, cache) for name, make in PRETRAINED.items()}
    lines = []
    for seed in seeds:
        for kind, make in kinds.items():
            features, labels = make(np.random.default_rng((seed, zlib.crc32(kind.encode()))))
            found = find_contexts(features, labels, seed=seed)
            lines.append({"kind": kind, "seed": seed, "contexts": found.number, "by": found.method})
    return pd.DataFrame(lines)


def _of_cache(
    make: Callable[[np.random.Generator, Path], Drawn], cache: Path
) -> Callable[[np.random.Generator], Drawn]:
    return lambda rng: make(rng, cache)


def _pacs(cache: Path) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    with np.load(cache / "pacs.npz") as stored:
        names = np.array([name.split("/") for name in stored["names"]])
        return stored["features"].astype(np.float64), names


def main() -> None:
    """Print how often contexts were accepted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path)
    settings = parser.parse_args()
    results = run(range(settings.seeds), settings.cache)
    if settings.out is not None:
        results.to_csv(settings.out, index=False)
    accepted = results.assign(accepted=results["contexts"] > 1).groupby("kind")["accepted"]
    print(accepted.agg(["sum", "count"]).to_string())


if __name__ == "__main__":
    main()
