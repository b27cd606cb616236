"""Decorrelated Weighting Regression, on the features of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from pfdl._internal.validation import check_count, check_number
from pfdl.objectives.weightings.base import Weighting


class DWR(Weighting):
    r"""Sample weights that decorrelate all features of the batch (Kuang et al., 2020).

    The weights w = G∘G start at 1 for each batch and minimise

    .. math::
        \frac{2000}{p} \sum_j \Big\| \tfrac1n w^\top (X_j \circ X^{(-j)})
        - \tfrac{w^\top X_j}{\sum w} \tfrac1n w^\top X^{(-j)} \Big\|_2
        + 0.0005 \big(\textstyle\sum w - n\big)^2 + 0.00005 \sum w^2

    with RMSProp. The published method is one stage of a regression on a table and takes up to 5000 steps on all rows at
    once; :class:`pfdl.tabular.DWRRegressor` is that. Here, as in applications to networks, it sees a mini-batch and
    takes ``steps`` steps. Costs O(n·p²) a step.

    Args:
        steps: Steps of RMSProp for each batch.
        learning_rate: Their size.
    """

    reference = "Kuang et al., 2020"

    def __init__(self, *, steps: int = 20, learning_rate: float = 0.005) -> None:
        super().__init__()
        check_count("steps", steps, 0)
        check_number("learning_rate", learning_rate)
        self.steps = steps
        self.learning_rate = learning_rate

    def forward(self, features: Tensor) -> Tensor:
        """Learn the weights of a batch of features, shape (n, p)."""
        x = features.detach().float()
        root = x.new_ones(len(x), requires_grad=True)
        optimizer = torch.optim.RMSprop([root], lr=self.learning_rate)
        for _ in range(self.steps):
            with torch.enable_grad():
                loss = dwr_loss(x, root.square())
            (root.grad,) = torch.autograd.grad(loss, root)
            optimizer.step()
        return self.finish(root.detach().square())


def dwr_loss(x: Tensor, weights: Tensor) -> Tensor:
    """DWR's loss of some weights, shape (n,), on x, shape (n, p), from one weighted covariance matrix."""
    n, p = x.shape
    weighted = x * weights[:, None]
    cross = x.T @ weighted / n - torch.outer(weighted.sum(0) / weights.sum(), weighted.sum(0) / n)
    without_itself = cross - cross.diagonal().diag_embed()
    # The norm has no derivative at 0; a feature that is already independent of all others asks for nothing.
    lengths = without_itself.square().sum(1).clamp(min=torch.finfo(x.dtype).tiny).sqrt()
    return 2000 / p * lengths.sum() + 0.0005 * (weights.sum() - n).square() + 0.00005 * weights.square().sum()
