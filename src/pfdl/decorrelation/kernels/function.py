"""The closed form as a function that autograd can differentiate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pfdl.decorrelation.kernels.one_hidden import Backend, OneHidden

Parameters = tuple[Tensor, Tensor, Tensor, Tensor]
"""Weight (h, visible), offset, readout (1, h) and constant, as :class:`pfdl.FeatureDecomposition` keeps them."""

Slow = Callable[[Tensor, Parameters, Tensor | None], Tensor]
"""The same network in operations that can be differentiated any number of times."""


def lay_out(u: Tensor, parameters: Parameters, shared: Tensor | None, strict: bool, activation: str) -> OneHidden:
    """Lay out a one-hidden-layer g for a backend; its tensors are cut off from autograd."""
    weight, offset, readout, constant = (parameter.detach() for parameter in parameters)
    shared = None if shared is None else shared.detach()
    # The transposed weights are a copy; so is nothing else, and nothing here is kept longer than one call.
    return OneHidden(
        u.detach().contiguous(), weight.T.contiguous(), offset.contiguous(), readout[0], constant, strict, activation,
        shared,
    )  # fmt: skip


def apply_one_hidden(
    u: Tensor,
    parameters: Parameters,
    shared: Tensor | None,
    backend: Backend,
    strict: bool,
    activation: str,
    slow: Slow,
) -> Tensor:
    """Return Ũ, shape (n, p), differentiable in ``u``, ``parameters`` and ``shared``.

    Only what is asked for is computed in the backward pass: the gradient of the features, of the parameters, or both.
    """
    result: Tensor = _OneHiddenFunction.apply(u, *parameters, shared, backend, strict, activation, slow)
    return result


class _OneHiddenFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        weight: Tensor,
        offset: Tensor,
        readout: Tensor,
        constant: Tensor,
        shared: Tensor | None,
        backend: Backend,
        strict: bool,
        activation: str,
        slow: Slow,
    ) -> Tensor:
        net = lay_out(u, (weight, offset, readout, constant), shared, strict, activation)
        out, base = backend.predict(net)
        ctx.save_for_backward(u, weight, offset, readout, constant, shared, base)
        ctx.backend, ctx.strict, ctx.activation, ctx.slow = backend, strict, activation, slow
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        u, *parameters, shared, base = ctx.saved_tensors
        if torch.is_grad_enabled():
            return (*_differentiable_gradients(ctx, u, tuple(parameters), shared, gradient), None, None, None, None)
        net = lay_out(u, tuple(parameters), shared, ctx.strict, ctx.activation)
        gradient = gradient.contiguous()
        of_u: Tensor | None = None
        if ctx.needs_input_grad[0]:
            of_u = ctx.backend.feature_gradient(net, base, gradient).to(u.dtype)
        rest: tuple[Tensor | None, ...] = (None,) * 5
        if any(ctx.needs_input_grad[1:6]):
            found = ctx.backend.parameter_gradients(net, base, gradient)
            rest = tuple(
                value if needed else None for value, needed in zip(found, ctx.needs_input_grad[1:6], strict=True)
            )
        return (of_u, *rest, None, None, None, None)


def _differentiable_gradients(
    ctx: Any, u: Tensor, parameters: tuple[Tensor, ...], shared: Tensor | None, gradient: Tensor
) -> tuple[Tensor | None, ...]:
    """Return the gradients with a graph of their own, for those who differentiate twice: by the slow path."""
    inputs = (u, *parameters, shared)
    wanted = [x for x, needed in zip(inputs, ctx.needs_input_grad, strict=False) if needed and x is not None]
    with torch.enable_grad():
        out = ctx.slow(u, parameters, shared)
        found = iter(torch.autograd.grad(out, wanted, gradient, create_graph=True))
    return tuple(
        next(found) if needed and x is not None else None
        for x, needed in zip(inputs, ctx.needs_input_grad, strict=False)
    )
