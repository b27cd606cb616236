"""The plain mean."""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor

from pfdl.objectives.base import Weighting


class Uniform(Weighting):
    """Weights of 1: the risk is the plain mean, as in empirical risk minimisation."""

    needs = ("risks",)

    def recording_key(self) -> Hashable:
        """Return that there is nothing to fix."""
        return ()

    def forward(self, risks: Tensor) -> Tensor:
        """Return ones in the shape of the risks."""
        return self.finish(torch.ones_like(risks))
