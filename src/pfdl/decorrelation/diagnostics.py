"""What the last call of a penalty saw."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Diagnostics:
    """What the last call saw, as tensors on the device: reading a number is what waits for the
    device.

    Attributes:
        decorrelation_loss: L_decorr, without its weight.
        weight: What L_decorr was multiplied by.
        level_part: L_decorr with only its level terms, see
            :func:`pfdl.decorrelation.functional.decorrelation_parts`.
        covariance_part: L_decorr with only its covariance terms.
        unexplained: L_g of each feature, shape (p,), before the last update of g.
        variance: The variance of each feature over the batch that g was fitted to, shape (p,).
    """

    decorrelation_loss: Tensor | None = None
    weight: float | None = None
    level_part: Tensor | None = None
    covariance_part: Tensor | None = None
    unexplained: Tensor | None = None
    variance: Tensor | None = None

    @property
    def decomposition_loss(self) -> Tensor | None:
        """Return L_g of the last g-step, before its update."""
        return None if self.unexplained is None else self.unexplained.mean()

    @property
    def r2(self) -> Tensor | None:
        """Return the R² of g for each feature on the last batch it was fitted to, before the
        update.

        1: fully predictable from the others, 0: no better than its mean. NaN for a feature that was
        constant.
        """
        if self.unexplained is None or self.variance is None:
            return None
        return torch.where(self.variance > 0, 1 - self.unexplained / self.variance, torch.nan)

    @property
    def explained(self) -> Tensor | None:
        """Return the share of all the features' variance that g explained on that batch.

        Not the mean of ``r2``: one nearly constant feature would drown the others.
        """
        if self.unexplained is None or self.variance is None:
            return None
        return 1 - self.unexplained.sum() / self.variance.sum()

    def summary(self) -> dict[str, float]:
        """Return the numbers worth logging; ``r2`` is :attr:`explained`."""
        numbers = {
            "decomposition_loss": self.decomposition_loss,
            "decorrelation_loss": self.decorrelation_loss,
            "level_part": self.level_part,
            "covariance_part": self.covariance_part,
            "weight": self.weight,
            "r2": self.explained,
        }
        return {name: float(value) for name, value in numbers.items() if value is not None}
