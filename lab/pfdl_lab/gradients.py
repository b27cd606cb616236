"""What PFDL's penalty asks of the features: gradients that controls follow and probes compare."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl.decorrelation import PartialDecorrelation, functional


def level_loss(features: Tensor) -> Tensor:
    """Return the squared mean square of the samples' mean features, which a shared g makes of
    L_decorr.
    """
    return features.mean(1).square().mean().square()


def probe(penalty: PartialDecorrelation, features: Tensor) -> dict[str, float]:
    """Compare PFDL's penalty on one batch with the level penalty and with its own two parts.

    The mean over samples of Ũ_j·(T − U_j) is a product of means, the *level part*, plus a
    covariance, the *covariance part*. Gradients are taken with respect to the features, through g's
    inputs too, with g frozen.

    Args:
        penalty: The penalty, with its g as trained so far.
        features: U, shape (n, p).

    Returns:
        ``L_decorr``, ``level_part`` and ``covariance_part`` (values); ``cosine_level_penalty`` (of
        the gradients of L_decorr and of the level penalty); ``covariance_gradient`` (norm of the
        covariance part's gradient as a share of L_decorr's).
    """
    u = features.detach().to(next(penalty.decomposition.parameters()).dtype).requires_grad_()
    seen = functional.standardize(u) if penalty.standardize else u
    correlated = penalty.decomposition(seen)
    loss = functional.decorrelation_loss(seen, correlated, center=penalty.center)
    level_part, covariance_part = functional.decorrelation_parts(seen, correlated)
    whole, covariance, level = (
        torch.autograd.grad(value, u, retain_graph=True)[0].flatten()
        for value in (loss, covariance_part, level_loss(u))
    )
    return {
        "L_decorr": loss.item(),
        "level_part": level_part.item(),
        "covariance_part": covariance_part.item(),
        "cosine_level_penalty": F.cosine_similarity(whole, level, dim=0).item(),
        "covariance_gradient": (
            (covariance.norm() / whole.norm().clamp(min=torch.finfo(u.dtype).tiny)).item()
        ),
    }
