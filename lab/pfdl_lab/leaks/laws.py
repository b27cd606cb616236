"""Leaks put into a table: columns that are effects of its label, by law and by strength.

Each law takes the scores z of the label (mean 0, variance 1), the honest columns and a strength r,
the correlation of a latent consequence with z. It gives the leaking columns and the rows left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm, truncnorm

FloatArray = NDArray[np.float64]
STRENGTHS = (0.3, 0.45, 0.6, 0.75, 0.85, 0.95)
LEAST_LEFT = 200


@dataclass(frozen=True)
class Leak:
    """A table with a leak in it.

    Attributes:
        law: How the leak came about.
        strength: r.
        X: All columns, the leaking ones last.
        rows: Which rows of the table are left.
        columns: Names of the leaking columns.
    """

    law: str
    strength: float
    X: pd.DataFrame
    rows: NDArray[np.bool_]
    columns: list[str]


def label_scores(y: pd.Series, rng: np.random.Generator) -> FloatArray:
    """Return the normal scores of a number, or a score per class, drawn for three or more."""
    if y.dtype.kind == "f":
        scores = norm.ppf((y.rank().to_numpy() - 0.5) / len(y))
    else:
        codes, classes = pd.factorize(y, sort=True)
        values = np.arange(len(classes), dtype=float)
        scores = (rng.permutation(values) if len(classes) > 2 else values)[codes]
    return np.asarray((scores - scores.mean()) / scores.std())


def _consequence(z: FloatArray, r: float, rng: np.random.Generator) -> FloatArray:
    return np.asarray(r * z + np.sqrt(1.0 - r * r) * rng.standard_normal(len(z)))


def _five_values(z: FloatArray, r: float, rng: np.random.Generator) -> FloatArray:
    latent = _consequence(z, r, rng)
    return np.digitize(latent, np.quantile(latent, [0.2, 0.4, 0.6, 0.8])).astype(float)


def _binary(z: FloatArray, r: float, rng: np.random.Generator) -> FloatArray:
    latent = _consequence(z, r, rng)
    return (latent > np.median(latent)).astype(float)


def _rounded(z: FloatArray, r: float, rng: np.random.Generator) -> FloatArray:
    return np.asarray(np.round(2.5 * _consequence(z, r, rng)))


def _skewed(z: FloatArray, r: float, rng: np.random.Generator) -> FloatArray:
    return np.asarray(np.exp(_consequence(z, r, rng)))


def _group_mean(z: FloatArray, r: float, rng: np.random.Generator) -> FloatArray:
    """Average z over groups of five rows that were formed in the order of a consequence of it."""
    order = np.argsort(_consequence(z, r, rng))
    group = np.empty(len(z), dtype=np.intp)
    group[order] = np.arange(len(z)) // 5
    means = np.bincount(group, weights=z) / np.bincount(group)
    return np.asarray(means[group])


DRAWN: dict[str, Callable[[FloatArray, float, np.random.Generator], FloatArray]] = {
    "consequence": _consequence,
    "rounded": _rounded,
    "five values": _five_values,
    "binary": _binary,
    "skewed": _skewed,
    "group mean": _group_mean,
}
_SELECTED = ("selected, paper's law", "selected, band", "selected by a third variable")
LAWS = (
    *DRAWN,
    "noisy copy",
    "computed from label and a column",
    "copy by rank",
    "two columns whose sum is the label",
    *_SELECTED,
)
#: Laws that have no strength.
EXACT = ("copy by rank", "two columns whose sum is the label")


def leak(X: pd.DataFrame, y: pd.Series, law: str, r: float, seed: list[int]) -> Leak | None:
    """Put a leak into a table; None where the law does not fit the table or leaves too few rows."""
    rng = np.random.default_rng(seed)
    z = label_scores(y, rng)
    rows = np.ones(len(z), dtype=bool)
    number = y.dtype.kind == "f"
    added: dict[str, FloatArray]
    if law in DRAWN:
        added = {"LEAK": DRAWN[law](z, r, rng)}
    elif law == "noisy copy":
        added = {"LEAK": _noisy_copy(y, r, rng) if number else _noisy_label(z, r, rng)}
    elif law == "computed from label and a column":
        added = {"LEAK": _with_column(X, z, r, rng)}
    elif law == "copy by rank":
        if not number:
            return None
        added = {"LEAK": np.exp(2.0 * z) if rng.random() < 0.5 else z**3}
    elif law == "two columns whose sum is the label":
        if not number:
            return None
        other = rng.standard_normal(len(z))
        own = ((y - y.mean()) / y.std()).to_numpy()
        added = {"LEAK 1": own - other, "LEAK 2": other}
    else:
        noise = rng.standard_normal(len(z))
        rows = _selected(law, np.asarray(z - noise), r, rng)
        added = {"LEAK": noise}
    table = X.assign(**added)
    if rows.sum() < LEAST_LEFT:
        return None
    return Leak(law, r, table, rows, list(added))


def _noisy_copy(y: pd.Series, r: float, rng: np.random.Generator) -> FloatArray:
    """Return the label as it is, in its own units and with its tails, with noise."""
    values = y.to_numpy()
    noise = values.std() * np.sqrt(1.0 / (r * r) - 1.0)
    return np.asarray(values + noise * rng.standard_normal(len(values)))


def _noisy_label(z: FloatArray, r: float, rng: np.random.Generator) -> FloatArray:
    """Return the class, drawn at random for a share 1 - r of the rows."""
    return np.where(rng.random(len(z)) < r, z, rng.permutation(z))


def _with_column(X: pd.DataFrame, z: FloatArray, r: float, rng: np.random.Generator) -> FloatArray:
    """Return a consequence whose noise is in half another column's."""
    chosen = X.columns[int(rng.integers(X.shape[1]))]
    column = X[chosen].rank().to_numpy()
    own = (column - column.mean()) / column.std()
    noise = (own + rng.standard_normal(len(z))) / np.sqrt(2.0)
    return np.asarray(r * z + np.sqrt(1.0 - r * r) * noise)


def _selected(law: str, apart: FloatArray, r: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw the rows that stay, the likelier the closer the column lies to the label.

    A normal label and the column then correlate by about r: their distance, whose variance is 2,
    keeps a variance of 2 (1 - r) / (1 + r).
    """
    left = 2.0 * (1.0 - r) / (1.0 + r)
    if law == "selected, band":
        return np.abs(apart) < _bound(2.0, left)
    if law == "selected by a third variable":
        noise = 0.04
        slope = 2.0 / (2.0 + noise)
        seen = apart + np.sqrt(noise) * rng.standard_normal(len(apart))
        left_of_seen = max(left - 2.0 * (1.0 - slope), 0.02) / slope**2
        return np.asarray(np.abs(seen) < _bound(2.0 + noise, left_of_seen))
    steepness = 2.0 * r / np.sqrt(1.0 - r * r)
    return np.asarray(rng.random(len(apart)) < np.exp(-steepness * np.abs(apart)))


def _bound(variance: float, left: float) -> float:
    """Return the bound within which a normal variable keeps this much of its variance."""
    spread = np.sqrt(variance)

    def excess(bound: float) -> float:
        return float(variance * truncnorm.var(-bound / spread, bound / spread)) - left

    return float(brentq(excess, 1e-3, 20.0))
