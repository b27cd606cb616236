"""What PFDL's penalty asks of the features: gradients that controls follow and probes compare."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl.decorrelation import PartialDecorrelation, functional


def level_loss(features: Tensor) -> Tensor:
    """Return the squared mean square of the samples' mean features, which a shared g makes of L_decorr."""
    return features.mean(1).square().mean().square()


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


def probe(penalty: PartialDecorrelation, features: Tensor) -> dict[str, float]:
    """Compare PFDL's penalty on one batch with the level penalty and with its own two parts.

    The mean over samples of Ũ_j·(T − U_j) is a product of means, the *level part*, plus a covariance, the *covariance
    part*. Gradients are taken with respect to the features, through g's inputs too, with g frozen.

    Args:
        penalty: The penalty, with its g as trained so far.
        features: U, shape (n, p).

    Returns:
        ``L_decorr``, ``level_part``, ``covariance_part`` and ``level_penalty`` (values); ``cosine_level_penalty`` (of
        the gradients of L_decorr and of the level penalty); ``covariance_gradient`` (norm of the covariance part's
        gradient as a share of L_decorr's); ``norm_ratio`` (norm of the level penalty's gradient over L_decorr's).
    """
    u = features.detach().to(next(penalty.decomposition.parameters()).dtype).requires_grad_()
    seen = functional.standardize(u.detach()) if penalty.standardize else u.detach()
    correlated = penalty.decomposition(seen).detach()
    parts = functional.decorrelation_parts(seen, correlated)
    level_penalty = level_loss(u)
    (level_gradient,) = torch.autograd.grad(level_penalty, u)
    gradients = gradient_parts(penalty, u)
    size = gradients.whole.norm().clamp(min=torch.finfo(u.dtype).tiny)
    return {
        "L_decorr": float(functional.decorrelation_loss(seen, correlated)),
        "level_part": float(parts.level),
        "covariance_part": float(parts.covariance),
        "level_penalty": float(level_penalty.detach()),
        "cosine_level_penalty": float(F.cosine_similarity(gradients.whole.flatten(), level_gradient.flatten(), dim=0)),
        "covariance_gradient": float(gradients.covariance.norm() / size),
        "norm_ratio": float(level_gradient.norm() / size),
    }
