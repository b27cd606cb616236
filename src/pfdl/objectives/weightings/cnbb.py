"""The batch-balancing weights of CNBB."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from pfdl._internal.validation import check_count, check_matrix, check_number
from pfdl.objectives.base import Weighting
from pfdl.objectives.penalties.quantization import Quantization
from pfdl.parts import DataShape


class CNBB(Weighting):
    r"""Weights under which every feature is balanced against all the others (He et al., 2021, the
    NICO paper).

    Each feature j is read as a treatment, :math:`I_j = 1[f_j > 0]`; the weights, which sum to 1,
    are to make treated and untreated samples similar in all other features:

    .. math::
        \sum_j \Big\| \frac{F_{-j}^\top (w \circ I_j)}{w^\top I_j} -
        \frac{F_{-j}^\top (w \circ (1 - I_j))}{w^\top (1 - I_j)} \Big\|^2 + \lambda \|w\|^2

    The features should be signed (CNBB's network ends in tanh). CNBB's other term is
    :class:`pfdl.objectives.penalties.Quantization`.

    The paper gives no numbers for the inner optimisation. Solver and numbers are those of the
    public reimplementation in changliu00/causal-semantic-generative-model: from equal weights a few
    steps of gradient descent within Σw = 1, then absolute values, scaled to sum 1 again. On wide
    features these steps overshoot, so that the loss may rise: the method acts, if badly; read
    ``effective_sample_size``. One difference: a feature that is on, or off, in the whole batch has
    no comparison and is left out here; the reimplementation compares it with zero.

    Args:
        steps: Gradient steps on the weights for each batch.
        learning_rate: The size of these steps.
        size_weight: λ.
    """

    reference = "He et al., 2021"

    def __init__(
        self, *, steps: int = 4, learning_rate: float = 1e-3, size_weight: float = 1e-4
    ) -> None:
        super().__init__()
        check_count("steps", steps, 0)
        check_number("learning_rate", learning_rate)
        check_number("size_weight", size_weight)
        self.steps = steps
        self.learning_rate = learning_rate
        self.size_weight = size_weight

    @classmethod
    def from_data(cls, shape: DataShape, **settings: Any) -> tuple[CNBB, Quantization]:
        """Build both terms of the method."""
        return cls(**settings), Quantization()

    def recording_key(self) -> Hashable:
        """Return the settings of the inner optimisation."""
        return (self.steps, self.learning_rate, self.size_weight)

    def forward(self, features: Tensor) -> Tensor:
        """Learn the weights of a batch of features, shape (n, p)."""
        check_matrix("features", features)
        settings = (self.steps, self.learning_rate, self.size_weight)
        (weights,) = self.captured.run(self._learn, [features.detach().float()], settings)
        return self.finish(weights)

    @torch.no_grad()
    def _learn(self, f: Tensor) -> list[Tensor]:
        """Take gradient steps among weights that sum to 1, with the gradient in closed form."""
        weights = torch.full_like(f[:, 0], 1 / len(f))
        for _ in range(self.steps):
            gradient = balance_gradient(f, weights) + 2 * self.size_weight * weights
            weights = (weights - self.learning_rate * (gradient - gradient.mean())).abs()
            weights = weights / weights.sum()
        return [weights]


def balance_gradient(f: Tensor, weights: Tensor) -> Tensor:
    """Return the gradient with respect to the weights, (n,), of the sum over j above, for features
    (n, p).

    With D the differences of the means, a sample treated with j adds Σ_k D_kj (f_ik − m_kj) / s_j,
    where m and s are the mean and the size of the treated; an untreated one takes away the same of
    the untreated.
    """
    treated = f > 0
    number = treated.sum(0)
    comparable = (number > 0) & (number < len(f))
    weighted = weights[:, None] * treated
    size_of_treated = weighted.sum(0)
    size = torch.where(comparable, size_of_treated, 1)
    size_of_rest = torch.where(comparable, weights.sum() - size_of_treated, 1)
    # [k, j] is feature k among those treated with feature j
    total = f.T @ weighted
    total_of_all = (f.T @ weights)[:, None]
    mean = total / size
    mean_of_rest = (total_of_all - total) / size_of_rest
    difference = (mean - mean_of_rest) * comparable
    difference = difference - difference.diagonal().diag_embed()
    projected = f @ difference
    gain = (projected - (difference * mean).sum(0)) / size
    loss = (projected - (difference * mean_of_rest).sum(0)) / size_of_rest
    return 2 * torch.where(treated, gain, -loss).sum(1)
