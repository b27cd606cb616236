"""What the last call of a penalty saw."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Diagnostics:
    """What the last call saw, as tensors on the device: reading a number is what waits for the device.

    Attributes:
        decomposition_loss: L_g of the last g-step, before its update.
        decorrelation_loss: L_decorr, without its weight.
        weight: What L_decorr was multiplied by.
    """

    decomposition_loss: Tensor | None = None
    decorrelation_loss: Tensor | None = None
    weight: float | None = None
    _unexplained: Tensor | None = None
    _variance: Tensor | None = None

    @property
    def r2(self) -> Tensor | None:
        """R² of g for each feature on the last batch it was fitted to, before the update.

        1: wholly predictable from the others, 0: no better than its mean. NaN for a feature that was constant.
        """
        if self._unexplained is None or self._variance is None:
            return None
        return torch.where(self._variance > 0, 1 - self._unexplained / self._variance, torch.nan)

    @property
    def explained(self) -> Tensor | None:
        """The share of all the features' variance that g explained on that batch.

        Not the mean of ``r2``: one nearly constant feature would drown the others.
        """
        if self._unexplained is None or self._variance is None:
            return None
        return 1 - self._unexplained.sum() / self._variance.sum()

    def summary(self) -> dict[str, float]:
        """Return the numbers worth logging; ``r2`` is :attr:`explained`."""
        numbers = {
            "decomposition_loss": self.decomposition_loss,
            "decorrelation_loss": self.decorrelation_loss,
            "weight": self.weight,
            "r2": self.explained,
        }
        return {name: float(value) for name, value in numbers.items() if value is not None}
