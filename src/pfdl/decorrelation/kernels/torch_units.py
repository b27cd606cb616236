"""Hidden units of a group of features in plain PyTorch: operations that write into the buffers they are given."""

from __future__ import annotations

import torch
from torch import Tensor

from pfdl.decorrelation.kernels.one_hidden import OneHidden


def hidden_layer(net: OneHidden, pre: Tensor, out: Tensor) -> Tensor:
    """Return the hidden layer from pre-activations, both of shape (group, n, h), in ``out``."""
    if net.activation == "gelu":
        hidden: Tensor = torch.ops.aten.gelu.out(pre, out=out)
        return hidden
    return torch.clamp_min(pre, 0, out=out)


def delta_of(net: OneHidden, pre: Tensor, gradient: Tensor, out: Tensor) -> Tensor:
    """Return δ from pre-activations, both of shape (group, n, h), and G, shape (group, n), in ``out``."""
    delta = torch.mul(gradient[:, :, None], net.readout, out=out)
    if net.activation == "gelu":
        torch.ops.aten.gelu_backward.grad_input(delta, pre, grad_input=delta)
    else:
        torch.ops.aten.threshold_backward.grad_input(delta, pre, 0, grad_input=delta)
    return delta


def dot(values: Tensor, weight: Tensor, spare: Tensor) -> Tensor:
    """Return the sum over hidden units of values (group, n, h) times weight (group, 1, h); ``spare`` is overwritten.

    A batched product of matrices and vectors would be the same, and on a CPU several times slower.
    """
    return torch.mul(values, weight, out=spare).sum(2)
