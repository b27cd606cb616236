"""The gradients of PFDL's penalty and of its two parts at the features: what controls follow and probes compare."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pfdl.decorrelation import PartialDecorrelation, functional


class GradientParts(NamedTuple):
    """Gradients at the features, each of shape (n, p), without the weight."""

    whole: Tensor  # of L_decorr
    level: Tensor  # of its level part
    covariance: Tensor  # of its covariance part


def gradient_parts(penalty: PartialDecorrelation, features: Tensor) -> GradientParts:
    """Return the gradients of L_decorr and of its parts at the features, with g frozen; update nothing.

    Args:
        penalty: The penalty, with its g as trained so far.
        features: U, shape (n, p).
    """
    g = penalty.decomposition
    with torch.enable_grad():
        leaf = features.detach().clone().requires_grad_()
        u = leaf.to(g.first_weight.dtype)
        u = functional.standardize(u) if penalty.standardize else u
        correlated = g(u)
        whole = functional.decorrelation_loss(u, correlated, center=penalty.center)
        losses = (whole, *functional.decorrelation_parts(u, correlated))
    return GradientParts(*(torch.autograd.grad(loss, leaf, retain_graph=True)[0] for loss in losses))
