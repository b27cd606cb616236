"""One step of Adam on the parameters of a one-hidden-layer g, skipped on the device if it would not be finite.

PyTorch's fused step gives a processor of the GPU 65,536 numbers at a time, so that g's parameters occupy eight of them
and leave the others idle; and the check before it takes a dozen launches. This one spreads over the GPU in three.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Adam, AdamW, Optimizer

from pfdl.decorrelation.kernels.dispatch import has_triton_for

PARAMETERS = 4
"""Of a g with one hidden layer: weight, offset, readout and constant."""


@dataclass(frozen=True)
class AdamStep:
    """Adam or AdamW on some parameters, with PyTorch's state of it.

    Attributes:
        parameters: What is updated.
        first: The first moment of each.
        second: The second moment of each.
        steps: The number of steps of each, a scalar on the device.
        lr: The learning rate.
        betas: How much of the two moments is kept.
        eps: What is added to the root of the second moment.
        weight_decay: Its factor.
        decoupled: Whether the decay acts on the parameters (AdamW) or on the gradient (Adam).
    """

    parameters: Sequence[Tensor]
    first: Sequence[Tensor]
    second: Sequence[Tensor]
    steps: Sequence[Tensor]
    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    decoupled: bool

    @classmethod
    def of(cls, optimizer: Optimizer, parameters: Sequence[Parameter]) -> AdamStep | None:
        """Return the next step of an optimiser; None if it has to take that step itself."""
        if type(optimizer) not in (Adam, AdamW) or len(optimizer.param_groups) != 1 or len(parameters) != PARAMETERS:
            return None
        (group,) = optimizer.param_groups
        hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
        if hooks or group["amsgrad"] or group["maximize"] or not isinstance(group["lr"], (int, float)):
            return None
        states = [optimizer.state.get(parameter, {}) for parameter in parameters]  # empty before the first step
        if not all(state.keys() >= {"step", "exp_avg", "exp_avg_sq"} for state in states):
            return None
        first, second, steps = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
        if not all(_serves(tensor, parameters[0].device) for tensor in (*parameters, *first, *second, *steps)):
            return None
        decoupled = type(optimizer) is AdamW or bool(group.get("decoupled_weight_decay", False))
        values = [parameter.detach() for parameter in parameters]
        lr, eps, decay = (float(group[name]) for name in ("lr", "eps", "weight_decay"))
        return cls(values, first, second, steps, lr, group["betas"], eps, decay, decoupled)

    def take(self, gradients: Sequence[Tensor], unexplained: Tensor, seen: Tensor) -> None:
        """Update the parameters unless L_g or the sum of the gradients' squares is not finite.

        Args:
            gradients: Of each parameter; contiguous.
            unexplained: L_g of each feature.
            seen: A number on the device that becomes 1.0 if the update is skipped.
        """
        from pfdl.decorrelation.kernels import triton_adam  # imported late: Triton comes with PyTorch for CUDA only

        logarithms = [math.log(beta) if beta > 0 else -math.inf for beta in self.betas]
        triton_adam.take(self, gradients, unexplained, seen, logarithms)


def _serves(tensor: Tensor, device: torch.device) -> bool:
    return (
        tensor.device == device and tensor.dtype == torch.float32 and tensor.is_contiguous() and has_triton_for(device)
    )
