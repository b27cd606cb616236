"""What PFDL's penalty asks of the features, along a training: its parts, and how its gradient points."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl.decorrelation import PartialDecorrelation, functional
from pfdl_lab.controls import Level
from pfdl_lab.gradients import gradient_parts


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
    level_penalty = Level()(u)
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
