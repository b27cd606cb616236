"""Decorrelation alone, as strong as the published penalty: a control for Table II, not PFDL."""

from __future__ import annotations

import torch
from torch import Tensor

from pfdl.decorrelation import PartialDecorrelation
from pfdl.objectives.penalties import Penalty


class MatchedCovariance(Penalty):
    """Follow the covariance part of L_decorr, at every step as strongly as PFDL follows the whole of it.

    The covariance part is the only one that is about correlation, and its gradient at the features is far shorter than
    that of L_decorr; with weight 1 it does nothing. Here its gradient is stretched to the length of the whole one's, so
    that the two rows differ in the direction only. The stretching factor is the λ that would have matched, and is
    logged.

    Args:
        num_features: p, the width of the embedding.
        sharing: How g is shared, see :class:`pfdl.PartialDecorrelation`.
    """

    def __init__(self, num_features: int, *, sharing: str = "strict") -> None:
        super().__init__()
        self.pfdl = PartialDecorrelation(num_features, sharing=sharing)
        self.factor: Tensor | None = None

    def forward(self, features: Tensor) -> Tensor:
        """Fit g, then return a scalar of value 0 whose gradient is the stretched one."""
        if self.training:
            self.pfdl.fit_step(features)
        found = self.pfdl.gradient_parts(features)
        smallest = torch.finfo(found.covariance.dtype).tiny
        self.factor = found.whole.norm() / found.covariance.norm().clamp(min=smallest)
        return ((features - features.detach()) * (self.factor * found.covariance)).sum()

    def metrics(self) -> dict[str, Tensor]:
        """Return the factor of the last call, and what PFDL reports of g."""
        found = self.pfdl.metrics()
        return found if self.factor is None else {**found, "matched_weight": self.factor}
