"""Training the decomposition network g on a table, with rows held out to judge it by."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pfdl.decorrelation.decomposition import FeatureDecomposition
from pfdl.decorrelation.functional import decomposition_loss
from pfdl.tabular.evidence import Unexplained, linear_decomposer
from pfdl.tabular.moments import Moments

FloatArray = NDArray[np.float64]

_HELD_OUT_SHARE, _MOST_HELD_OUT = 0.2, 20_000
_ROWS_AT_A_TIME = 4096
_PATIENCE = 5


@dataclass(frozen=True)
class NetworkTraining:
    """Measure with networks how much of each column the others explain, on rows held out from training.

    Trains with Adam on mini-batches until the held-out loss has not fallen for five looks, or for ``max_steps``. A look
    is taken after every pass over the table, or every 200 steps where a pass is longer.
    """

    hidden: Sequence[int]
    max_steps: int
    seed: int
    learning_rate: float = 0.01
    batch_size: int = 128

    def fit(
        self, X: FloatArray, moments: Moments, *, label: FloatArray | None = None
    ) -> tuple[FeatureDecomposition, FloatArray]:
        """Train an indexed g to predict each column from the others, and from the label if one is given.

        The label is one more column, which is seen by all predictions and whose own is not asked for.

        Returns:
            g with the weights that did best on the held-out rows, in double precision, and its residual variance
            there per column.
        """
        rng = np.random.default_rng(self.seed)
        order = rng.permutation(len(X))
        num_held_out = _num_held_out(len(X))
        held_out, training = np.sort(order[:num_held_out]), np.sort(order[num_held_out:])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            inputs = moments.num_columns + (0 if label is None else label.shape[1])
            g = FeatureDecomposition(inputs, self.hidden, sharing="indexed")
        optimizer = torch.optim.Adam(g.parameters(), lr=self.learning_rate)
        best, best_state, looks_without_gain = np.inf, copy.deepcopy(g.state_dict()), 0
        residual = np.ones(moments.num_columns)
        look_every = min(max(len(training) // self.batch_size, 1), 200)
        for step in range(1, self.max_steps + 1):
            rows = training[rng.integers(len(training), size=min(self.batch_size, len(training)))]
            columns, visible = _batch(X, label, rows, moments)
            loss = decomposition_loss(columns, g(visible)[:, : moments.num_columns])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if step % look_every and step < self.max_steps:
                continue
            now = _residual_variance(g, X, label, held_out, moments)
            looks_without_gain += 1
            if now.mean() < best:
                best, residual, looks_without_gain = now.mean(), now, 0
                best_state = copy.deepcopy(g.state_dict())
            if looks_without_gain >= _PATIENCE:
                break
        g.load_state_dict(best_state)
        return g.double().eval(), residual

    def __call__(self, X: FloatArray, label: FloatArray, moments: Moments) -> Unexplained:
        """Decompose the columns with two networks, one that does not see the label and one that does.

        A network on few rows may know less than least squares does; per column the better of the two counts.
        """
        linear = linear_decomposer(X, label, moments)
        _, without_label = self.fit(X, moments)
        _, with_label = self.fit(X, moments, label=label)
        return Unexplained(
            np.minimum(linear.without_label, without_label),
            np.minimum(linear.with_label, with_label),
            rows=_num_held_out(len(X)),
            inputs=0,
        )


def _num_held_out(rows: int) -> int:
    return min(max(int(_HELD_OUT_SHARE * rows), 1), _MOST_HELD_OUT)


def correlated_part(g: FeatureDecomposition, X: FloatArray, moments: Moments) -> FloatArray:
    """Return g's prediction of every column from the others, of shape (n, p), in standard deviations."""
    parts = []
    with torch.no_grad():
        for start in range(0, len(X), _ROWS_AT_A_TIME):
            features = torch.from_numpy(moments.scaled(X[start : start + _ROWS_AT_A_TIME]))
            parts.append(g(features).numpy())
    return np.concatenate(parts)


def _residual_variance(
    g: FeatureDecomposition, X: FloatArray, label: FloatArray | None, rows: NDArray[np.intp], moments: Moments
) -> FloatArray:
    total = np.zeros(moments.num_columns)
    with torch.no_grad():
        for start in range(0, len(rows), _ROWS_AT_A_TIME):
            columns, visible = _batch(X, label, rows[start : start + _ROWS_AT_A_TIME], moments)
            total += ((columns - g(visible)[:, : moments.num_columns]) ** 2).sum(dim=0).double().numpy()
    return np.maximum(total / len(rows), np.finfo(float).tiny)


def _batch(X: FloatArray, label: FloatArray | None, rows: NDArray[np.intp], moments: Moments) -> tuple[Tensor, Tensor]:
    """Return the columns of some rows, and the same with the label beside them."""
    columns = torch.from_numpy(moments.scaled(X[rows]).astype(np.float32))
    if label is None:
        return columns, columns
    return columns, torch.cat([columns, torch.from_numpy(moments.centred(label[rows]).astype(np.float32))], dim=1)
