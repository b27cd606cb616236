"""One step of Adam on the parameters of a one-hidden-layer g, skipped on the device if it would not
be finite.

PyTorch's fused step gives a processor of the GPU 65,536 numbers at a time, so that g's parameters
occupy eight of them and leave the others idle (37 µs on an H200, where this one takes 5), and the
check before it takes a dozen launches. Here both are three launches that spread over the GPU.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Adam, AdamW, Optimizer
from triton.language import constexpr

from pfdl.decorrelation.kernels.triton_kernels import load, store, stretch

LENGTH = 1024
"""Numbers a program works on."""

PARAMETERS = 4
"""Of a g with one hidden layer: weight, offset, readout and constant."""


def can_step(optimizer: Optimizer, parameters: Sequence[Parameter]) -> bool:
    """Return whether :func:`take_step` does what the next step of an optimiser would: of a fused
    Adam or AdamW.
    """
    if not _takes_plain_steps(optimizer) or len(parameters) != PARAMETERS:
        return False
    tensors: list[Tensor] = [*parameters]
    for parameter in parameters:
        state = optimizer.state.get(parameter, {})
        if not state.keys() >= {"step", "exp_avg", "exp_avg_sq"}:
            return False  # before the first step
        tensors += (state["step"], state["exp_avg"], state["exp_avg_sq"])
    device = parameters[0].device
    return all(_is_plain(tensor, device) for tensor in tensors)


def _takes_plain_steps(optimizer: Optimizer) -> bool:
    """Return whether it is a fused Adam or AdamW with one group, and nothing beside its step."""
    if type(optimizer) not in (Adam, AdamW) or len(optimizer.param_groups) != 1:
        return False
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return False
    (group,) = optimizer.param_groups
    if group["amsgrad"] or group["maximize"]:
        return False
    return bool(group["fused"]) and isinstance(group["lr"], (int, float))


def _is_plain(tensor: Tensor, device: torch.device) -> bool:
    is_single = tensor.dtype == torch.float32
    return tensor.device == device and is_single and tensor.is_contiguous()


def take_step(
    optimizer: Optimizer,
    parameters: Sequence[Parameter],
    gradients: Sequence[Tensor],
    unexplained: Tensor,
    seen: Tensor,
) -> None:
    """Take a step of an optimiser that :func:`can_step`, unless L_g or the gradients' squares are
    not finite.

    Args:
        optimizer: Whose settings and moments are used.
        parameters: What is updated.
        gradients: Of each parameter; contiguous.
        unexplained: L_g of each feature.
        seen: Numbers on the device, of which the first becomes 1.0 if the update is skipped.
    """
    (group,) = optimizer.param_groups
    lr = float(group["lr"])
    eps = float(group["eps"])
    decay = float(group["weight_decay"])
    beta1, beta2 = group["betas"]
    logarithms = [math.log(beta) if beta > 0 else -math.inf for beta in (beta1, beta2)]
    is_decoupled = type(optimizer) is AdamW or bool(group.get("decoupled_weight_decay", False))
    states = [optimizer.state[parameter] for parameter in parameters]
    sizes = [gradient.numel() for gradient in gradients]
    programs = sum(triton.cdiv(size, LENGTH) for size in sizes)
    partial = unexplained.new_empty(programs)
    verdict = unexplained.new_empty(1 + 2 * len(sizes))
    _square_sums[(programs,)](*gradients, *sizes[:3], partial, LENGTH=LENGTH, num_warps=4)
    _judge[(1,)](
        partial,
        programs,
        unexplained,
        len(unexplained),
        *(state["step"] for state in states),
        seen,
        verdict,
        lr,
        *logarithms,
        LENGTH=LENGTH,
        num_warps=4,
    )
    tensors: list[Tensor] = []
    for parameter, gradient, state in zip(parameters, gradients, states, strict=True):
        tensors += (parameter.detach(), gradient, state["exp_avg"], state["exp_avg_sq"])
    _update[(programs,)](
        *tensors,
        *sizes[:3],
        verdict,
        1 - beta1,
        beta2,
        1 - beta2,
        eps,
        0.0 if is_decoupled else decay,
        lr * decay if is_decoupled else 0.0,
        LENGTH=LENGTH,
        num_warps=4,
    )


@triton.jit
def _square_sum(gradient, tile, size, LENGTH: constexpr):
    g = load(gradient, stretch(tile, LENGTH), size)
    return tl.sum(g * g, axis=0)


# Sums of squares: programs work on the four gradients one after the other, of which the last is one
# number.
@triton.jit
def _square_sums(g0, g1, g2, g3, size0, size1, size2, partial, LENGTH: constexpr):
    program = tl.program_id(0)
    end0 = tl.cdiv(size0, LENGTH)
    end1 = end0 + tl.cdiv(size1, LENGTH)
    end2 = end1 + tl.cdiv(size2, LENGTH)
    if program < end0:
        tl.store(partial + program, _square_sum(g0, program, size0, LENGTH))
    elif program < end1:
        tl.store(partial + program, _square_sum(g1, program - end0, size1, LENGTH))
    elif program < end2:
        tl.store(partial + program, _square_sum(g2, program - end1, size2, LENGTH))
    else:
        tl.store(partial + program, _square_sum(g3, program - end2, 1, LENGTH))


# Count a step unless it is skipped, and correct the bias of the moments: in float64, for 1 − 0.999
# has few digits left.
@triton.jit
def _count(steps, corrections, advance, lr, log_beta1, log_beta2):
    step = tl.load(steps) + advance
    tl.store(steps, step)
    exact = step.to(tl.float64)
    bias1 = (1.0 - tl.exp(exact * log_beta1)).to(tl.float32)
    bias2 = (1.0 - tl.exp(exact * log_beta2)).to(tl.float32)
    tl.store(corrections, lr / bias1)
    tl.store(corrections + 1, 1.0 / tl.sqrt(bias2))


# One program: is everything finite? The verdict is 1.0 if not, followed by the corrections of each
# parameter.
@triton.jit
def _judge(
    partial,
    programs,
    unexplained,
    p,
    step0,
    step1,
    step2,
    step3,
    seen,
    verdict,
    lr,
    log_beta1,
    log_beta2,
    LENGTH: constexpr,
):
    acc = tl.zeros((LENGTH,), tl.float32)
    for start in range(0, programs, LENGTH):
        acc += load(partial, start + tl.arange(0, LENGTH), programs)
    for start in range(0, p, LENGTH):
        acc += load(unexplained, start + tl.arange(0, LENGTH), p)
    skip = tl.where(tl.abs(tl.sum(acc, axis=0)) < float("inf"), 0.0, 1.0)  # false for NaN, too
    tl.store(verdict, skip)
    tl.store(seen, tl.maximum(tl.load(seen), skip))
    _count(step0, verdict + 1, 1.0 - skip, lr, log_beta1, log_beta2)
    _count(step1, verdict + 3, 1.0 - skip, lr, log_beta1, log_beta2)
    _count(step2, verdict + 5, 1.0 - skip, lr, log_beta1, log_beta2)
    _count(step3, verdict + 7, 1.0 - skip, lr, log_beta1, log_beta2)


@triton.jit
def _adam(
    parameter,
    gradient,
    first,
    second,
    tile,
    size,
    corrections,
    new1,
    beta2,
    new2,
    eps,
    decay,
    shrink,
    LENGTH: constexpr,
):
    place = stretch(tile, LENGTH)
    x = load(parameter, place, size)
    g = load(gradient, place, size) + decay * x
    m = load(first, place, size)
    v = load(second, place, size)
    m += new1 * (g - m)
    v = beta2 * v + new2 * (g * g)
    rate = tl.load(corrections)
    denominator = tl.sqrt(v) * tl.load(corrections + 1) + eps
    x = x - shrink * x - rate * m / denominator
    store(parameter, place, x, size)
    store(first, place, m, size)
    store(second, place, v, size)


# The step itself, unless the verdict is to skip it.
@triton.jit
def _update(
    x0,
    g0,
    m0,
    v0,
    x1,
    g1,
    m1,
    v1,
    x2,
    g2,
    m2,
    v2,
    x3,
    g3,
    m3,
    v3,
    size0,
    size1,
    size2,
    verdict,
    new1,
    beta2,
    new2,
    eps,
    decay,
    shrink,
    LENGTH: constexpr,
):
    program = tl.program_id(0)
    end0 = tl.cdiv(size0, LENGTH)
    end1 = end0 + tl.cdiv(size1, LENGTH)
    end2 = end1 + tl.cdiv(size2, LENGTH)
    if tl.load(verdict) == 0.0:
        if program < end0:
            _adam(
                x0,
                g0,
                m0,
                v0,
                program,
                size0,
                verdict + 1,
                new1,
                beta2,
                new2,
                eps,
                decay,
                shrink,
                LENGTH,
            )
        elif program < end1:
            _adam(
                x1,
                g1,
                m1,
                v1,
                program - end0,
                size1,
                verdict + 3,
                new1,
                beta2,
                new2,
                eps,
                decay,
                shrink,
                LENGTH,
            )
        elif program < end2:
            _adam(
                x2,
                g2,
                m2,
                v2,
                program - end1,
                size2,
                verdict + 5,
                new1,
                beta2,
                new2,
                eps,
                decay,
                shrink,
                LENGTH,
            )
        else:
            _adam(
                x3,
                g3,
                m3,
                v3,
                program - end2,
                1,
                verdict + 7,
                new1,
                beta2,
                new2,
                eps,
                decay,
                shrink,
                LENGTH,
            )
