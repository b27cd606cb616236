"""Inferred contexts beside the true ones and the published methods, on photographs with a shortcut.

Each draw has a training set in which class and context go together 10:1, a usual test and one of
the reversed mixture. A logistic readout of pretrained features is trained with the groups of each
method weighing the same; its accuracy where the shortcut is broken is what counts. In controls no
context goes with a class; some of them have wrong labels.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score

from pfdl._internal.files import write_atomically
from pfdl.contexts import find_contexts, worst_group_accuracy
from pfdl.contexts.probe import equal_classes, equal_groups
from pfdl_lab.shortcuts.embedding import embed_pool
from pfdl_lab.shortcuts.pools import Draw, Indices, draw, load_pool

STRENGTH = 1e-3
"""C of the readout, on scaled features."""

FIRST = 1e-5
"""C of the first network of JTT, SPARE and EIIL: a short training."""

PEERS = ("jtt", "spare", "eiil")

NEVER_SEEN = (
    "crops",
    "pets",
    "objects",
    "animals_grain",
    "animals_compress",
    "animals_dim",
)
"""Sets that were not looked at while the rule was made."""

DESIGN = (
    "leaves",
    "styles",
    "photos",
    "scenes",
    "cats_border",
    "cats_soft",
    "people",
    "people_cast",
    "people_scale",
    "people_compress",
    "people_soft",
)

RECORDS = "results.csv"


@dataclass(frozen=True)
class ShortcutsConfig:
    """What is run.

    Attributes:
        sets: The sets, see :func:`pfdl_lab.shortcuts.pools.load_pool`.
        draws: Draws of each set, and of its control.
        first_draw: Number of the first draw.
        wrong: Shares of wrong labels in further controls, of the first draw.
        peers: Whether JTT, SPARE and EIIL are run.
    """

    sets: Sequence[str] = NEVER_SEEN + DESIGN
    draws: int = 2
    first_draw: int = 10
    wrong: Sequence[float] = (0.05, 0.1)
    peers: bool = True


def run(config: ShortcutsConfig, data: Path | None, cache: Path, output: Path) -> pd.DataFrame:
    """Run all draws, and return a line for each method of each.

    Args:
        config: What is run.
        data: The folder with pacs/, petscapes/ and leaves/; None where all features are cached.
        cache: Folder of the features, embedded here if they are missing.
        output: Folder of the results; draws that are in it are not run again.
    """
    output.mkdir(parents=True, exist_ok=True)
    file = output / RECORDS
    lines: list[dict[str, Any]] = []
    if file.exists():
        table = pd.read_csv(file).fillna({"found": ""})
        lines = [dict(line) for _, line in table.iterrows()]
    done = {(line["set"], line["kind"], line["draw"]) for line in lines}
    for name in config.sets:
        if data is not None:
            embed_pool(name, data, cache)
        pool = load_pool(name, cache)
        for kind, number, settings in _draws(config):
            if (name, kind, number) in done:
                continue
            drawn = draw(pool, number, **settings)
            found = compare(drawn, seed=number, peers=config.peers and kind == "shortcut")
            lines += [{"set": name, "kind": kind, "draw": number, **line} for line in found]
            write_atomically(file, pd.DataFrame(lines).to_csv(index=False))
            print(f"{name}, {kind}, draw {number}: {found[2]['found']}", flush=True)
    return pd.DataFrame(lines)


def _draws(config: ShortcutsConfig) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield what is drawn of each set: its kind, the number of the draw, and how."""
    for number in range(config.first_draw, config.first_draw + config.draws):
        yield "shortcut", number, {}
        yield "control", number, {"control": True}
    for share in config.wrong:
        settings = {"control": True, "wrong": share}
        yield f"control, {100 * share:g} % wrong", config.first_draw, settings


def compare(drawn: Draw, *, seed: int, peers: bool) -> list[dict[str, Any]]:
    """Train a readout with the contexts of each method, and test it.

    Returns:
        A line for each method: accuracies in percent, what was found, and processor seconds.
    """
    train = drawn.train
    mean, deviation = train.features.mean(axis=0), train.features.std(axis=0)
    varying = deviation > 1e-9
    readout = Readout(
        (train.features - mean)[:, varying] / deviation[varying], train.labels, mean, deviation
    )
    labels = train.labels
    equal = equal_classes(labels, int(labels.max()) + 1)
    lines = [
        _line("plain", drawn, readout.fit(np.ones(len(labels)))),
        _line("classes", drawn, readout.fit(equal)),
    ]
    begin = time.process_time()
    inferred = find_contexts(train.features, labels, seed=seed)
    line = _line("inferred", drawn, readout.fit(_weights(labels, inferred.contexts)))
    line["found"] = inferred.method
    line["seconds"] = time.process_time() - begin
    line["agreement"] = _agreement(labels, train.contexts, inferred.contexts)
    lines.append(line)
    lines.append(_line("true", drawn, readout.fit(_weights(labels, train.contexts))))
    clusters = KMeans(3, n_init=5, random_state=seed).fit_predict(readout.z).astype(np.intp)
    lines.append(_line("k-means", drawn, readout.fit(_weights(labels, clusters))))
    if peers:
        logits = readout.logits(FIRST)
        for name in PEERS:
            by_logits = find_contexts(logits, labels, method=name, seed=seed)
            draws = np.ones(len(labels)) if by_logits.draws is None else by_logits.draws
            line = _line(name, drawn, readout.fit(draws))
            line["agreement"] = _agreement(labels, train.contexts, by_logits.contexts)
            lines.append(line)
    return lines


class Readout:
    """Fit logistic readouts of the same features with different weights.

    Features are turned to as many coordinates as there are samples, which changes no prediction.

    Args:
        z: Scaled training features, shape (n, p).
        labels: The classes, shape (n,).
        mean: By which features are centred.
        deviation: By which they are scaled.
    """

    def __init__(
        self,
        z: NDArray[np.float64],
        labels: Indices,
        mean: NDArray[np.float64],
        deviation: NDArray[np.float64],
    ) -> None:
        self.z, self.labels = z, labels
        self._mean, self._deviation = mean, deviation
        left, values, directions = np.linalg.svd(z, full_matrices=False)
        self._turned, self._directions = left * values, directions

    def fit(self, weights: NDArray[np.float64], strength: float = STRENGTH) -> Predict:
        """Return what predicts the classes of features."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = LogisticRegression(C=strength, max_iter=500).fit(
                self._turned, self.labels, sample_weight=weights / weights.mean()
            )
        return Predict(model, self._directions, self._mean, self._deviation)

    def logits(self, strength: float) -> NDArray[np.float64]:
        """Return the logits of the training samples after a short training."""
        scores = self.fit(np.ones(len(self.labels)), strength).model.decision_function(self._turned)
        if scores.ndim == 1:
            scores = np.stack([-scores, scores], axis=1)
        return np.asarray(scores)


@dataclass(frozen=True, eq=False)
class Predict:
    """Predict the classes of features by a readout."""

    model: LogisticRegression
    directions: NDArray[np.float64]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    def __call__(self, features: NDArray[np.float64]) -> Indices:
        """Return the class of each sample, shape (n,)."""
        varying = self.deviation > 1e-9
        z = (features - self.mean)[:, varying] / self.deviation[varying]
        return np.asarray(self.model.predict(z @ self.directions.T))


def _weights(labels: Indices, contexts: Indices) -> NDArray[np.float64]:
    return equal_groups(labels, np.unique(contexts, return_inverse=True)[1].reshape(-1))


def _line(method: str, drawn: Draw, predict: Predict) -> dict[str, Any]:
    """Return the accuracies of a readout, in percent."""
    usual = predict(drawn.usual.features)
    broken = predict(drawn.broken.features)
    worst = worst_group_accuracy(broken, drawn.broken.labels, drawn.broken.contexts)
    return {
        "method": method,
        "usual": 100 * float((usual == drawn.usual.labels).mean()),
        "broken": 100 * float((broken == drawn.broken.labels).mean()),
        "worst": 100 * float(worst),
        "found": "",
        "agreement": float("nan"),
        "seconds": float("nan"),
    }


def _agreement(labels: Indices, true: Indices, found: Indices) -> float:
    """Return the adjusted Rand index within classes."""
    of_class = [
        adjusted_rand_score(true[labels == label], found[labels == label])
        for label in np.unique(labels)
    ]
    return float(np.mean(of_class))


def print_summary(results: pd.DataFrame) -> None:
    """Print what each method gains where the shortcut is broken, and how often controls alarm."""
    console = Console()
    table = results[results["kind"] == "shortcut"].pivot_table(
        index=["set", "draw"], columns="method", values=["usual", "broken", "worst"]
    )
    for name, part in summarise(results).items():
        console.print(f"{name}: {part}")
    console.print(table.groupby("set").mean().round(1).to_string())


def summarise(results: pd.DataFrame) -> dict[str, float]:
    """Return the figures that the goals are about."""
    shortcut = results[results["kind"] == "shortcut"]
    broken = shortcut.pivot_table(index=["set", "draw"], columns="method", values="broken")
    usual = shortcut.pivot_table(index=["set", "draw"], columns="method", values="usual")
    gain = broken.sub(broken["plain"], axis=0)
    accepted = results[results["method"] == "inferred"].assign(
        accepted=lambda table: table["found"] != "none"
    )
    found = accepted[accepted["kind"] == "shortcut"].set_index(["set", "draw"])["accepted"]
    large = gain["true"] >= 5
    new = gain.index.get_level_values("set").isin(NEVER_SEEN)
    figures = {
        "gain of the true contexts": gain["true"].mean(),
        "their cost on usual": (usual["true"] - usual["plain"]).mean(),
        "cost of the inferred ones": (usual["inferred"] - usual["plain"]).mean(),
        "found where the gain is 5 points": found[large].mean(),
    }
    for method in gain.columns.drop(["plain", "true"]):
        figures[f"share of the gain, {method}"] = gain[method].sum() / gain["true"].sum()
    if new.any():
        share = gain.loc[new, "inferred"].sum() / gain.loc[new, "true"].sum()
        figures["share of the gain, inferred, sets never looked at"] = share
    for kind, part in accepted[accepted["kind"] != "shortcut"].groupby("kind"):
        figures[f"alarms of {len(part)}, {kind}"] = int(part["accepted"].sum())
    return {name: round(float(value), 3) for name, value in figures.items()}
