"""A penalty on the level of the features alone."""

from __future__ import annotations

import math

from torch import Tensor

from pfdl.objectives.penalties.base import Penalty


class Level(Penalty):
    r"""Penalise the level of the features: the squared mean over samples of each sample's squared mean feature.

    .. math:: \lambda \Big( \frac1n \sum_i \bar u_i^2 \Big)^2, \qquad \bar u_i = \frac1p \sum_j u_{ij}

    This is what PFDL's penalty comes to if its network g predicts nothing but a sample's mean feature: a control
    without any network, and not the paper's method.

    Args:
        weight: λ.

    Example:
        >>> import torch
        >>> Level(weight=2.0)(torch.tensor([[1.0, 3.0], [2.0, 2.0]]))
        tensor(32.)
    """

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        if not math.isfinite(weight) or weight < 0:
            raise ValueError(f"weight is {weight}; give a finite number of at least 0.")
        self.weight = weight

    def forward(self, features: Tensor) -> Tensor:
        """Return the penalty of a batch of features, shape (n, p)."""
        return self.weight * features.mean(1).square().mean().square()
