"""The leave-one-out network with one hidden layer as a function of autograd, and which kernels
compute it where.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import compress
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pfdl.decorrelation.kernels.leave_one_out import leave_one_out_mlp

KERNELS = ("auto", "plain")
"""``"auto"``: the closed form where there is one, Triton on a GPU and PyTorch on a CPU.
``"plain"``: with autograd.
"""


@dataclass(frozen=True)
class OneHidden:
    """A one-hidden-layer g and the rows it is applied to; its tensors are cut off from autograd.

    Attributes:
        u: Features, shape (n, p), contiguous; any floating type on a GPU, the type of the weights
            elsewhere.
        weight: W by coordinate, shape (p, h) if coordinate j is masked (indexed), (p − 1, h) if it
            is removed (strict); contiguous.
        offset: Added to the pre-activations: shape (p, h) if indexed, (h,) if strict; contiguous.
        readout: v, shape (h,).
        constant: c, shape (1,).
        activation: ``"relu"`` or ``"gelu"``, the exact one.
    """

    u: Tensor
    weight: Tensor
    offset: Tensor
    readout: Tensor
    constant: Tensor
    activation: str

    @classmethod
    def of(cls, u: Tensor, parameters: Sequence[Tensor], activation: str) -> OneHidden:
        """Lay out the parameters of a :class:`pfdl.FeatureDecomposition`, in its order."""
        weight, offset, readout, constant = parameters
        return cls(
            u=u.contiguous(),
            weight=weight.T.contiguous(),
            offset=offset.contiguous(),
            readout=readout[0],
            constant=constant,
            activation=activation,
        )

    @property
    def strict(self) -> bool:
        """Return whether coordinate j is removed, as in the paper's g, rather than masked."""
        return len(self.weight) < self.u.shape[1]

    def rows(self, some: slice) -> OneHidden:
        """Return the same network for some of the rows."""
        return replace(self, u=self.u[some])


class LeaveOneOut(torch.autograd.Function):
    """Ũ, shape (n, p), from u, the parameters of g, the module with the kernels and the name of the
    activation.

    The kernels are three functions: ``predict(net)`` returns Ũ and anything that the gradients can
    use again, ``parameter_gradients(net, base, G)`` and ``feature_gradient(net, base, G)`` take
    that and G = ∂L/∂Ũ. Gradients have the shapes in which :class:`pfdl.FeatureDecomposition` keeps
    weight, offset, readout and constant. In the backward pass only those are computed that are
    asked for.
    """

    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        weight: Tensor,
        offset: Tensor,
        readout: Tensor,
        constant: Tensor,
        kernels: ModuleType,
        activation: str,
    ) -> Tensor:
        """Return Ũ, and keep what the backward pass uses."""
        ctx.kernels = kernels
        ctx.net = OneHidden.of(u, (weight, offset, readout, constant), activation)
        ctx.save_for_backward(u, weight, offset, readout, constant)
        out: Tensor
        out, ctx.base = kernels.predict(ctx.net)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients, with a graph of their own if they are to be differentiated
        again.
        """
        inputs = ctx.saved_tensors  # raises if one of them was changed since
        if torch.is_grad_enabled():
            return (*_differentiable_gradients(ctx, inputs, gradient), None, None)
        gradient = gradient.contiguous()
        of_u: Tensor | None = None
        of_parameters: tuple[Tensor | None, ...] = (None,) * 4
        u_needs_one, *parameters_need_one = ctx.needs_input_grad[:5]
        if u_needs_one:
            of_u = ctx.kernels.feature_gradient(ctx.net, ctx.base, gradient).to(inputs[0].dtype)
        if any(parameters_need_one):
            of_parameters = ctx.kernels.parameter_gradients(ctx.net, ctx.base, gradient)
        return (of_u, *of_parameters, None, None)


def _differentiable_gradients(
    ctx: Any, inputs: tuple[Tensor, ...], gradient: Tensor
) -> list[Tensor | None]:
    u, weight, offset, readout, constant = inputs
    activation = {"relu": torch.relu, "gelu": F.gelu}[ctx.net.activation]
    are_wanted = ctx.needs_input_grad[: len(inputs)]
    wanted = list(compress(inputs, are_wanted))
    with torch.enable_grad():
        out = leave_one_out_mlp(
            u.to(weight.dtype), weight.T, offset, [(readout, constant)], activation
        )
        gradients = iter(torch.autograd.grad(out, wanted, gradient, create_graph=True))
    return [next(gradients) if is_wanted else None for is_wanted in are_wanted]


def choose_kernels(
    kernel: str,
    features: Tensor,
    dtype: torch.dtype,
    hidden: tuple[int, ...],
    activation: nn.Module,
) -> ModuleType | None:
    """Return the module with the kernels of g's closed form, or None where the plain path has to
    run.
    """
    has_closed_form = len(hidden) == 1 and type(activation) in (nn.ReLU, nn.GELU)
    if kernel == "plain" or not has_closed_form:
        return None
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return None  # neither torch.compile nor torch.func can trace the closed form
    device = features.device.type
    if device not in ("cpu", "cuda"):
        return None
    if device == "cuda" or _interpreting():
        if dtype != torch.float32 or not _has_triton():
            return None
        if len(features):  # a process of several may have no rows, for which a GPU has no work
            # Late: Triton comes with PyTorch for CUDA only
            from pfdl.decorrelation.kernels import triton_closed_form

            return triton_closed_form
    from pfdl.decorrelation.kernels import torch_closed_form

    return torch_closed_form


@cache
def _has_triton() -> bool:
    # Remembered, as below: such a search takes longer than the launch of a kernel.
    return importlib.util.find_spec("triton") is not None


@cache
def _interpreting() -> bool:
    """Return whether Triton's interpreter stands in for a GPU, as in the tests of the kernels."""
    return os.environ.get("TRITON_INTERPRET") == "1"
