"""Naive references: what the estimators must agree with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from sklearn.linear_model import LinearRegression

from pfdl.tabular import LeakScreen
from pfdl.tabular.moments import FloatArray, Moments, label_functions
from pfdl.tabular.screening import Drop, Screening


def dwr_loss_with_copies(X: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """DWR's first stage as its authors wrote it: the table stacked once per column, with that
    column zeroed.
    """
    n, p = X.shape
    copies = torch.stack([X * (torch.arange(p) != j) for j in range(p)])
    loss = torch.zeros((), dtype=X.dtype)
    for j in range(p):
        both = weight @ (X[:, [j]] * copies[j]) / n
        apart = (weight @ X[:, j] / weight.sum()) * (weight @ copies[j] / n)
        loss = loss + torch.linalg.vector_norm(both - apart)
    return 2000 / p * loss + 0.0005 * (weight.sum() - n) ** 2 + 0.00005 * (weight @ weight)


def moments_of(X: np.ndarray, label: np.ndarray) -> Moments:
    """Moments of rows that all count the same."""
    return Moments.of(X, label, np.ones(len(X)))


def label_of(y: np.ndarray, number: bool = True) -> FloatArray:
    """Functions of a label whose rows all count the same."""
    return label_functions(y, number, np.ones(len(y)))


def screen(X: np.ndarray, y: np.ndarray, drop: Drop = "strong") -> Screening:
    """The screening of a table of numbers, whatever its columns are called."""
    return LeakScreen(target="number", drop=drop).fit(X, y).screening_


def residual_variance(target: np.ndarray, inputs: np.ndarray) -> float:
    """Unbiased residual variance of a least-squares fit with intercept."""
    n = len(target)
    if not inputs.shape[1]:
        return float(target.var(ddof=1))
    rest = target - LinearRegression().fit(inputs, target).predict(inputs)
    return float(rest @ rest / (n - inputs.shape[1] - 1))


def marks(X: np.ndarray, label: np.ndarray, j: int, given: list[int]) -> tuple[float, float, float]:
    """m, k and share of column j given some columns, by one regression after the other."""
    n = len(X)
    others = np.delete(X, j, axis=1)
    unit = residual_variance(X[:, j], X[:, given]) * (n - len(given) - 1) / (n - len(given))
    beside_label = residual_variance(X[:, j], np.hstack([X[:, given], label]))
    beside_others = residual_variance(X[:, j], others)
    beside_both = residual_variance(X[:, j], np.hstack([others, label]))
    # Unbiased variances may say that everything together explains less than nothing; the label then
    # none of it, or all.
    share = (unit - beside_label) / max(unit - beside_both, np.finfo(float).tiny)
    return 1 - beside_others / unit, 1 - beside_both / beside_label, min(max(share, 0.0), 1.0)


Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray, np.ndarray]]


def select(
    draw: Draw, n: int, rate: float, seed: int, num_biased: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of [S, V] and y kept with probability exp(−rate Σ |y − V_b|); rate 0 keeps all."""
    rng = np.random.default_rng(seed)
    rows, labels = [], []
    while sum(map(len, labels)) < n:
        s, v, y = draw(rng, 20_000)
        kept = rng.random(len(y)) < np.exp(
            -rate * np.abs(y[:, None] - v[:, :num_biased]).sum(axis=1)
        )
        rows.append(np.hstack([s, v])[kept])
        labels.append(y[kept])
    return np.concatenate(rows)[:n], np.concatenate(labels)[:n]
