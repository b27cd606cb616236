"""Both steps of Algorithm 1 on a GPU: a few fused kernels for each, all of them one CUDA graph.

The numbers are those of :mod:`pfdl.decorrelation.functional` with autograd. Here every pass over an
(n, p) array is one launch, g's own Adam step and the check before it are three, and Python launches
the whole once: a hundred small launches would take longer than the work.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pfdl.decorrelation.kernels.function import OneHidden, choose_kernels

if TYPE_CHECKING:
    from pfdl.decorrelation.distributed import Batch
    from pfdl.decorrelation.partial_decorrelation import PartialDecorrelation


def serve(penalty: PartialDecorrelation, u: Tensor, batch: Batch) -> bool:
    """Return whether the kernels here can do what a call in training mode does."""
    g = penalty.decomposition
    kernels = choose_kernels(g.kernel, u, g.first_weight.dtype, g.hidden, g.activation)
    if kernels is None or not (u.requires_grad and torch.is_grad_enabled()):
        return False
    if batch.processes > 1:
        return False
    from pfdl.decorrelation.kernels.triton_adam import can_step

    return can_step(penalty.optimizer, list(g.parameters()))


def run(penalty: PartialDecorrelation, u: Tensor, weight: float) -> Tensor:
    """Fit g, note what the penalty saw, and return weight × L_decorr, which can be differentiated
    once.

    Both steps are recorded after a few calls, and again when anything changed that a record fixes:
    the shape, where g's parameters and their moments lie, or a setting.
    """
    flags = penalty.late_report.flags(u.device)
    settings = (
        penalty.fit_steps,
        penalty.center,
        penalty.decomposition.sharing,
        state_of(penalty),
    )
    results = penalty.captured.run(lambda u: both_steps(penalty, u, flags), [u.detach()], settings)
    penalty.late_report.send()
    unexplained, variance, gradient, losses = results
    loss, level, covariance = losses
    penalty.completed_fits += 1
    penalty.last = replace(
        penalty.last,
        unexplained=unexplained,
        variance=variance,
        decorrelation_loss=loss,
        weight=weight,
        level_part=level,
        covariance_part=covariance,
    )
    result: Tensor = _WithGradient.apply(u, loss, gradient, weight)
    return result


def both_steps(penalty: PartialDecorrelation, u: Tensor, flags: Tensor) -> list[Tensor]:
    """Update g and return L_g and variance of each feature, ∂L_decorr/∂u, and L_decorr with its two
    parts, shape (3,).

    Args:
        penalty: Whose g it is.
        u: The features, shape (n, p), detached.
        flags: Two numbers on the device, see :class:`pfdl.decorrelation.finiteness.LateReport`.
    """
    from pfdl.decorrelation.kernels import triton_closed_form as kernels, triton_losses as losses
    from pfdl.decorrelation.kernels.triton_adam import take_step

    parameters = list(penalty.decomposition.parameters())
    for _ in range(penalty.fit_steps):
        net = _lay_out(penalty, u)
        correlated, base = kernels.predict(net)
        of_correlated, unexplained, variance, means = losses.fit_errors(net.u, correlated)
        gradients = kernels.parameter_gradients(net, base, of_correlated)
        in_order = [gradient.contiguous() for gradient in gradients]
        take_step(penalty.optimizer, parameters, in_order, unexplained, flags)
    net = _lay_out(penalty, u)
    correlated, base = kernels.predict(net)
    is_centred = penalty.center == "batch"
    loss_and_parts, of_correlated, direct = losses.penalty(
        net.u, correlated, means, is_centred, flags
    )
    gradient = kernels.feature_gradient(net, base, of_correlated, onto=direct)
    return [unexplained, variance, gradient, loss_and_parts]


def _lay_out(penalty: PartialDecorrelation, u: Tensor) -> OneHidden:
    g = penalty.decomposition
    parameters = [parameter.detach() for parameter in g.parameters()]
    return OneHidden.of(u, parameters, g.activation_name)


def state_of(penalty: PartialDecorrelation) -> Hashable:
    """Return the settings of the optimiser and where its tensors lie."""
    optimizer = penalty.optimizer
    (group,) = optimizer.param_groups
    settings = tuple((name, value) for name, value in group.items() if name != "params")
    places = []
    for parameter in group["params"]:
        places.append(parameter.data_ptr())
        places.extend(moment.data_ptr() for moment in optimizer.state[parameter].values())
    return settings, tuple(places)


class _WithGradient(torch.autograd.Function):
    """``weight * loss`` as a function of the features, whose gradient is known."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, loss: Tensor, gradient: Tensor, weight: float
    ) -> Tensor:
        ctx.gradient = gradient
        ctx.weight = weight
        return weight * loss

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the fused penalty can be differentiated once only; for gradients of gradients"
                " construct it with kernel='plain'."
            )
        if ctx.weight != 1:
            outer = outer * ctx.weight
        return outer * ctx.gradient, None, None, None
