"""Parts of the published penalty and its rivals, each as strong as the whole: controls for Table II, not PFDL."""

from __future__ import annotations

import torch
from torch import Tensor

from pfdl.decorrelation import PartialDecorrelation
from pfdl.objectives.penalties import Level, Penalty
from pfdl_lab.table_ii.gradients import GradientParts, gradient_parts


class _Matched(Penalty):
    """Follow one direction at the features, at every step as strongly as PFDL follows its own.

    The gradient is stretched to the length of the gradient of L_decorr with a g that is trained alongside, so that two
    rows differ in the direction only. The stretching factor is the λ that would have matched, and is logged.

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
        found = gradient_parts(self.pfdl, features)
        direction = self.direction(features, found)
        self.factor = found.whole.norm() / direction.norm().clamp(min=torch.finfo(direction.dtype).tiny)
        return ((features - features.detach()) * (self.factor * direction)).sum()

    def direction(self, features: Tensor, parts: GradientParts) -> Tensor:
        """Return the gradient to stretch, shape (n, p)."""
        raise NotImplementedError

    def metrics(self) -> dict[str, Tensor]:
        """Return the factor of the last call, and what PFDL reports of g."""
        found = self.pfdl.metrics()
        return found if self.factor is None else {**found, "matched_weight": self.factor}


class MatchedCovariance(_Matched):
    """Follow the covariance part of L_decorr, the only one that is about correlation.

    Its own gradient is far shorter than that of L_decorr; with weight 1 it does nothing.
    """

    def direction(self, features: Tensor, parts: GradientParts) -> Tensor:
        """Return the gradient of the covariance part."""
        return parts.covariance


class MatchedLevel(_Matched):
    """Follow the level penalty, which has no g."""

    def direction(self, features: Tensor, parts: GradientParts) -> Tensor:
        """Return the gradient of the level penalty."""
        with torch.enable_grad():
            leaf = features.detach().to(parts.whole.dtype).requires_grad_()
            (gradient,) = torch.autograd.grad(Level(synchronize=False)(leaf), leaf)
        return gradient
