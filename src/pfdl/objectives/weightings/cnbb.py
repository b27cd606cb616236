"""The batch-balancing weights of CNBB."""

from __future__ import annotations

import torch
from torch import Tensor

from pfdl._internal.validation import check_count, check_matrix, check_number
from pfdl.objectives.weightings.base import Weighting


class CNBB(Weighting):
    r"""Weights under which every feature is balanced against all the others (He et al., 2021, the NICO paper).

    Each feature j is read as a treatment, :math:`I_j = 1[f_j > 0]`; the weights are to make treated and untreated
    samples alike in all other features:

    .. math::
        \sum_j \Big\| \frac{F_{-j}^\top (w \circ I_j)}{w^\top I_j} -
        \frac{F_{-j}^\top (w \circ (1 - I_j))}{w^\top (1 - I_j)} \Big\|^2 + \lambda \|w\|^2

    A feature that is on, or off, in the whole batch has no comparison and is left out. The features should be signed
    (CNBB's network ends in tanh). CNBB's other term is :class:`pfdl.objectives.penalties.Quantization`.

    The paper gives no numbers for the inner optimisation; those here are of later reimplementations. With them the
    weights move little from uniform: read ``effective_sample_size``.

    Args:
        steps: Gradient steps on the weights for each batch.
        learning_rate: Their size, for Adam on the logarithms of the weights.
        size_weight: λ, with the weights scaled to mean 1.
    """

    reference = "He et al., 2021"

    def __init__(self, *, steps: int = 4, learning_rate: float = 1e-3, size_weight: float = 1e-4) -> None:
        super().__init__()
        check_count("steps", steps, 0)
        check_number("learning_rate", learning_rate)
        check_number("size_weight", size_weight)
        self.steps = steps
        self.learning_rate = learning_rate
        self.size_weight = size_weight

    def forward(self, features: Tensor) -> Tensor:
        """Learn the weights of a batch of features, shape (n, p)."""
        check_matrix("features", features)
        f = features.detach().float()
        logits = f.new_zeros(len(f), requires_grad=True)
        optimizer = torch.optim.Adam([logits], lr=self.learning_rate)
        for _ in range(self.steps):
            with torch.enable_grad():
                weights = len(f) * logits.softmax(0)
                loss = balance_loss(f, weights) + self.size_weight * weights.square().sum()
            (logits.grad,) = torch.autograd.grad(loss, logits)
            optimizer.step()
        return self.finish(logits.detach().softmax(0))


def balance_loss(f: Tensor, weights: Tensor) -> Tensor:
    """Return how differently treated and untreated samples look under weights, shape (n,), for features (n, p)."""
    treated = (f > 0).to(f.dtype)
    size_treated = weights @ treated
    size_untreated = weights.sum() - size_treated
    comparable = (treated.sum(0) > 0) & (treated.sum(0) < len(f))
    sum_treated = f.T @ (weights[:, None] * treated)  # [k, j]: feature k over the samples treated with j
    sum_untreated = (f.T @ weights)[:, None] - sum_treated
    safe_treated = torch.where(comparable, size_treated, 1)
    safe_untreated = torch.where(comparable, size_untreated, 1)
    difference = (sum_treated / safe_treated - sum_untreated / safe_untreated) * comparable
    return (difference - difference.diagonal().diag_embed()).square().sum()
