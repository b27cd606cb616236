"""The covariance part of L_decorr alone, as strong as the whole of it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from pfdl.decorrelation import PartialDecorrelation
from pfdl.decorrelation.functional import decorrelation_loss, decorrelation_parts
from pfdl.decorrelation.partial_decorrelation import MiniBatch


class CovarianceDecorrelation(PartialDecorrelation):
    """Decorrelate by the covariance part of L_decorr alone, as strongly as PFDL acts; ours, not the
    paper's.

    L_decorr is made of products of means and of covariances, and these alone are about correlation
    (:func:`pfdl.decorrelation.functional.decorrelation_parts`). After a ReLU their gradient is tens
    to thousands of times shorter than that of L_decorr. Here the model follows it alone, multiplied
    at every step until it is as long as that of L_decorr at the features. A large network from
    scratch then learns sooner and ends no better, so this is for short trainings.

    The arguments are those of :class:`pfdl.PartialDecorrelation`, and ``weight`` is the strength
    relative to PFDL's at λ = 1. A function of the number of completed g-fits switches it off:
    ``weight=lambda fits: float(fits < 1000)``.

    Attributes:
        matched_weight: The λ that the last call chose; 0 if the gradient of the covariances was
            lost in rounding.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> decorrelate = CovarianceDecorrelation(num_features=4, hidden=8)
        >>> features = torch.randn(16, 4).relu().requires_grad_()
        >>> decorrelate(features).backward()
        >>> bool(decorrelate.matched_weight > 1)
        True
    """

    reference = "pfdl"
    matched_weight: Tensor | None = None

    def measure(self, u: Tensor, covariance: Tensor) -> Tensor:
        """Return what is minimised, before it is made as strong as L_decorr."""
        return covariance

    def metrics(self) -> dict[str, Tensor]:
        """Return what PFDL reports, and the weight that made this penalty as strong."""
        if self.matched_weight is None:
            return super().metrics()
        return super().metrics() | {"matched_weight": self.matched_weight}

    def second_step(self, mini_batch: MiniBatch) -> Tensor:
        """Return λ × the measure made as strong as L_decorr, and note what was seen in ``last``."""
        u, batch, weight = mini_batch
        leaf = u.detach().requires_grad_()
        with torch.enable_grad():
            correlated = self.decomposition(leaf)
            whole = decorrelation_loss(leaf, correlated, center=self.center, batch=batch)
            level, covariance = decorrelation_parts(leaf, correlated, batch=batch)
            part = self.measure(leaf, covariance)
            (of_whole,) = torch.autograd.grad(whole, leaf, retain_graph=True)
            (of_part,) = torch.autograd.grad(part, leaf)
        self.last = replace(
            self.last,
            decorrelation_loss=whole.detach(),
            weight=weight,
            level_part=level.detach(),
            covariance_part=covariance.detach(),
        )
        squares = batch.average([of_whole.square().sum(), of_part.square().sum()])
        length_of_whole, length_of_part = (square.sqrt() for square in squares)
        is_lost = length_of_part <= torch.finfo(u.dtype).eps * length_of_whole
        self.matched_weight = torch.where(is_lost, 0.0, length_of_whole / length_of_part)
        return weight * self.matched_weight * _with_gradient(part.detach(), u, of_part)


def _with_gradient(value: Tensor, u: Tensor, gradient: Tensor) -> Tensor:
    """Return ``value`` as a function of ``u`` that has this gradient.

    What is added is zero, because u − u.detach() is; its derivative by u is the gradient. That has
    been computed already, because the weight depends on its length: so g runs once only.
    """
    return value + ((u - u.detach()) * gradient).sum()
