"""Both steps of the algorithm for the closed form, each with exactly the gradient it needs and no graph.

Step 1 wants the gradient of g's parameters, step 2 that of the features. L_g's gradient with respect to Ũ is local, and
L_decorr's needs p sums over the batch, so neither waits for a backward pass: it is made on the way, and g may change
afterwards without touching it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pfdl.decorrelation.distributed import Batch
from pfdl.decorrelation.kernels.one_hidden import Backend, OneHidden, ParameterGradients


def decomposition_gradients(net: OneHidden, backend: Backend, batch: Batch) -> tuple[Tensor, ParameterGradients]:
    """L_g of each feature, shape (p,), and its mean's gradients; this process's share of both."""
    correlated, base = backend.predict(net)
    residual = correlated.sub_(net.u)
    unexplained = residual.square().sum(0) / batch.total
    gradient = residual.mul_(2 / (batch.total * net.u.shape[1]))
    return unexplained, backend.parameter_gradients(net, base, gradient)


def paper_penalty(
    net: OneHidden, backend: Backend, batch: Batch, center: bool, wants_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """L_decorr in the paper's form, L = (1/p) Σ_j c_j², and its gradient in the features if that is wanted.

    c_j = mean_i Ũ_ij M_ij, where M_ij is the mean of the other features of row i, with ``center`` minus its mean over
    the batch.
    """
    u, p = net.u, net.u.shape[1]
    correlated, base = backend.predict(net)
    others = (u.sum(1, keepdim=True) - u).div_(p - 1)
    means: list[Tensor] = []
    if center:
        means = [value / batch.total for value in batch.sum_all([others.sum(0), correlated.sum(0)])]
        others -= means[0]
    (cross,) = batch.sum_all([(correlated * others).sum(0)])
    cross = cross / batch.total
    loss = cross.square().mean()
    if not wants_gradient:
        return loss, None
    # Every process returns the whole loss: the factor makes up for the averaging of gradients, see Batch.sum.
    scale = cross * (2 * batch.processes / p) / batch.total
    of_others = (correlated - means[1] if center else correlated) * scale
    direct = (of_others.sum(1, keepdim=True) - of_others).div_(p - 1)
    return loss, direct.add_(backend.feature_gradient(net, base, others.mul_(scale)))


def with_gradient(features: Tensor, loss: Tensor, gradient: Tensor | None) -> Tensor:
    """``loss`` as a function of ``features`` that autograd can differentiate once; the gradient is given."""
    if gradient is None:
        return loss
    result: Tensor = _WithGradient.apply(features, loss, gradient)
    return result


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, loss: Tensor, gradient: Tensor) -> Tensor:
        ctx.gradient = gradient
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the fused penalty can be differentiated once only; for gradients of gradients construct it with "
                "kernel='plain'."
            )
        return outer * ctx.gradient, None, None
