"""What PFDL's penalty asks of the features, along a training: its parts, and how its gradient points."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl.decorrelation import PartialDecorrelation
from pfdl.objectives.penalties import Level


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
    u = features.detach().double().requires_grad_()
    g = penalty.decomposition
    frozen = {name: value.detach().double() for name, value in g.named_parameters()}
    correlated = torch.func.functional_call(g, frozen, (u,))
    others = (u.sum(1, keepdim=True) - u) / (u.shape[1] - 1)
    product = (correlated * others).mean(0)
    level = correlated.mean(0) * others.mean(0)
    values = {
        "L_decorr": product.square().mean(),
        "level_part": level.square().mean(),
        "covariance_part": (product - level).square().mean(),
        "level_penalty": Level()(u),
    }
    gradients = {name: torch.autograd.grad(value, u, retain_graph=True)[0].flatten() for name, value in values.items()}
    whole = gradients["L_decorr"]
    size = whole.norm().clamp(min=torch.finfo(whole.dtype).tiny)
    return {
        **{name: float(value.detach()) for name, value in values.items()},
        "cosine_level_penalty": float(F.cosine_similarity(whole, gradients["level_penalty"], dim=0)),
        "covariance_gradient": float(gradients["covariance_part"].norm() / size),
        "norm_ratio": float(gradients["level_penalty"].norm() / size),
    }
