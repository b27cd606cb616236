"""The covariance part of L_decorr alone, as strong as the whole of it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from pfdl.decorrelation import PartialDecorrelation
from pfdl.decorrelation.distributed import Batch
from pfdl.decorrelation.functional import decorrelation_loss, decorrelation_parts


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
        return super().metrics() | (
            {} if self.matched_weight is None else {"matched_weight": self.matched_weight}
        )

    def _penalise(self, u: Tensor, batch: Batch, weight: float) -> Tensor:
        leaf = u.detach().requires_grad_()
        with torch.enable_grad():
            correlated = self.decomposition(leaf)
            whole_loss = decorrelation_loss(leaf, correlated, center=self.center, batch=batch)
            level, covariance = decorrelation_parts(leaf, correlated, batch=batch)
            losses = whole_loss, self.measure(leaf, covariance)
            gradients = [torch.autograd.grad(loss, leaf, retain_graph=True)[0] for loss in losses]
        parts = {"level_part": level.detach(), "covariance_part": covariance.detach()}
        self.last = replace(
            self.last, decorrelation_loss=whole_loss.detach(), weight=weight, **parts
        )
        whole, part = (
            size.sqrt()
            for size in batch.average([gradient.square().sum() for gradient in gradients])
        )
        is_lost = part <= torch.finfo(u.dtype).eps * whole
        self.matched_weight = torch.where(is_lost, 0.0, whole / part)
        slope = ((u - u.detach()) * gradients[1]).sum()  # this gradient, and no graph through g
        return weight * self.matched_weight * (losses[1].detach() + slope)
