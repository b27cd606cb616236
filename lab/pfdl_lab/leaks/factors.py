"""Tables without a leak whose columns share factors: scales, questionnaires, sensors, chains."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pfdl_lab.leaks.tables import Half, Kind, RealTable

FloatArray = NDArray[np.float64]
Drawn = tuple[FloatArray, FloatArray]

DRAWN = "drawn"
#: The first seed of each half.
FIRST_SEED: dict[Half, int] = {"design": 0, "report": 5000}
_ROWS = (300, 600, 1500, 4000)


def _with_noise(signal: FloatArray, least: float, rng: np.random.Generator) -> FloatArray:
    """Return a label of which the signal explains a share drawn between ``least`` and 0.95."""
    share = rng.uniform(least, 0.95)
    noise = signal.std() * np.sqrt(1.0 / share - 1.0)
    return np.asarray(signal + noise * rng.standard_normal(len(signal)))


def one_factor(n: int, rng: np.random.Generator) -> Drawn:
    """Draw causes that share one factor; the weakest looks like an effect of the label."""
    causes = int(rng.integers(4, 9))
    loading = rng.uniform(0.4, 0.9)
    own = np.sqrt(1.0 - loading**2) if rng.random() < 0.5 else 1.0
    factor = rng.standard_normal((n, 1))
    X = loading * factor + own * rng.standard_normal((n, causes))
    falling = rng.random() < 0.6
    weights = np.linspace(0.6, 0.2, causes) if falling else rng.uniform(0.05, 0.8, causes)
    return X, _with_noise(X @ weights, 0.5, rng)


def questionnaire(n: int, rng: np.random.Generator) -> Drawn:
    """Draw answers from one to five on items of two scales, and a criterion they predict."""
    items = int(rng.integers(6, 15))
    scales = rng.standard_normal((n, 2))
    loading = rng.uniform(0.4, 0.85, items)
    scale = rng.integers(0, 2, items)
    latent = loading * scales[:, scale] + np.sqrt(1.0 - loading**2) * rng.standard_normal(
        (n, items)
    )
    X = np.digitize(latent, [-1.5, -0.5, 0.5, 1.5]).astype(float)
    return X, _with_noise(X @ rng.uniform(0.0, 1.0, items), 0.4, rng)


def sensors(n: int, rng: np.random.Generator) -> Drawn:
    """Draw sensors that see the same three states; the label is one more of them."""
    number = int(rng.integers(5, 12))
    seen = rng.standard_normal((n, 3)) @ rng.uniform(-1.0, 1.0, (3, number + 1))
    seen += rng.uniform(0.1, 0.6) * rng.standard_normal(seen.shape)
    return seen[:, :-1], seen[:, -1]


def chain(n: int, rng: np.random.Generator) -> Drawn:
    """Draw causes of which each resembles the one before."""
    causes = int(rng.integers(5, 10))
    resemblance = rng.uniform(0.4, 0.8)
    X = rng.standard_normal((n, causes))
    for j in range(1, causes):
        X[:, j] = resemblance * X[:, j - 1] + np.sqrt(1.0 - resemblance**2) * X[:, j]
    return X, _with_noise(X @ rng.uniform(0.1, 0.7, causes), 0.5, rng)


STRUCTURES: dict[str, Callable[[int, np.random.Generator], Drawn]] = {
    "one factor": one_factor,
    "questionnaire": questionnaire,
    "sensors": sensors,
    "chain": chain,
}


def drawn_names(number: int) -> list[str]:
    """Return the names of so many tables, the structures in turn."""
    structures = zip(range(number), cycle(STRUCTURES))
    return [f"{DRAWN}/{structure} {place}" for place, structure in structures]


def draw_table(kind: Kind, half: Half, name: str) -> RealTable:
    """Draw the table of a name; a class is above or below the median."""
    _, _, item = name.partition("/")
    structure, _, number = item.rpartition(" ")
    rng = np.random.default_rng(FIRST_SEED[half] + int(number))
    X, y = STRUCTURES[structure](int(rng.choice(_ROWS)), rng)
    label = pd.Series(y)
    if kind == "class":
        label = (label > label.median()).map({True: "high", False: "low"})
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    return RealTable(DRAWN, item, kind, half, frame, label)
