"""Parts of the published penalty and its rivals, each as strong as the whole: controls for a claim, not PFDL."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pfdl import register_objective
from pfdl.decorrelation import PartialDecorrelation
from pfdl.objectives import DataShape
from pfdl.objectives.penalties import Level, Penalty
from pfdl_lab.gradients import GradientParts, gradient_parts


class MatchedPenalty(Penalty):
    """Follow one direction at the features, at every step as strongly as PFDL follows its own.

    The gradient is stretched to the length of the gradient of L_decorr with a g that is trained alongside, so that two
    rows differ in the direction only. The stretching factor is the λ that would have matched, and is logged.

    Args:
        num_features: p, the width of the embedding.
        sharing: How g is shared, see :class:`pfdl.PartialDecorrelation`.

    Attributes:
        is_on: Whether the penalty acts; set it to False to train on without it.
    """

    def __init__(self, num_features: int, *, sharing: str = "strict") -> None:
        super().__init__()
        self.pfdl = PartialDecorrelation(num_features, sharing=sharing)
        self.factor: Tensor | None = None
        self.is_on = True

    @classmethod
    def from_data(cls, shape: DataShape, **settings: Any) -> MatchedPenalty:
        """Build the penalty for features of this width."""
        return cls(shape.num_features, **settings)

    def forward(self, features: Tensor) -> Tensor:
        """Fit g, then return a scalar of value 0 whose gradient is the stretched one."""
        if not self.is_on:
            return features.new_zeros(())
        if self.training:
            self.pfdl.fit_step(features)
        found = gradient_parts(self.pfdl, features)
        direction = self.direction(features, found)
        self.factor = found.whole.norm() / direction.norm().clamp(min=torch.finfo(direction.dtype).tiny)
        return ((features - features.detach()) * (self.factor * direction)).sum()

    def direction(self, features: Tensor, parts: GradientParts) -> Tensor:
        """Return the gradient to stretch, shape (n, p)."""
        raise NotImplementedError

    def metrics(self) -> dict[str, Tensor]:
        """Return the factor of the last call, and what PFDL reports of g."""
        if not self.is_on or self.factor is None:
            return {}
        return {**self.pfdl.metrics(), "matched_weight": self.factor}


class MatchedCovariance(MatchedPenalty):
    """Follow the covariance part of L_decorr, the only one that is about correlation, as strongly as PFDL.

    Its own gradient is far shorter than that of L_decorr; with weight 1 it does nothing.
    """

    def direction(self, features: Tensor, parts: GradientParts) -> Tensor:
        """Return the gradient of the covariance part."""
        return parts.covariance


class MatchedLevel(MatchedPenalty):
    """Follow the level penalty, which has no g, as strongly as PFDL."""

    def direction(self, features: Tensor, parts: GradientParts) -> Tensor:
        """Return the gradient of the level penalty."""
        with torch.enable_grad():
            leaf = features.detach().to(parts.whole.dtype).requires_grad_()
            (gradient,) = torch.autograd.grad(Level(synchronize=False)(leaf), leaf)
        return gradient


COVARIANCE, LEVEL_MATCHED = "matched-covariance", "matched-level"
register_objective(COVARIANCE, MatchedCovariance)
register_objective(LEVEL_MATCHED, MatchedLevel)
