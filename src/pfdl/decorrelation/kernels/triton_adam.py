"""The kernels of :mod:`pfdl.decorrelation.kernels.adam`."""


# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

if TYPE_CHECKING:
    from pfdl.decorrelation.kernels.adam import AdamStep

LENGTH = 1024
"""Numbers a program works on."""


def take(
    step: AdamStep, gradients: Sequence[Tensor], unexplained: Tensor, seen: Tensor, logarithms: Sequence[float]
) -> None:
    """Launch the three kernels of a step; ``logarithms`` are those of its betas."""
    sizes = [gradient.numel() for gradient in gradients]
    programs = sum(-(-size // LENGTH) for size in sizes)
    partial, verdict = unexplained.new_empty(programs), unexplained.new_empty(1 + 2 * len(sizes))
    beta1, beta2 = step.betas
    _square_sums[(programs,)](*gradients, *sizes[:3], partial, LENGTH=LENGTH, num_warps=4)
    _judge[(1,)](
        partial, programs, unexplained, len(unexplained), *step.steps, seen, verdict, step.lr, *logarithms,
        LENGTH=LENGTH, num_warps=4,
    )  # fmt: skip
    tensors = [x for each in zip(step.parameters, gradients, step.first, step.second, strict=True) for x in each]
    _update[(programs,)](
        *tensors, *sizes[:3], verdict, 1 - beta1, beta2, 1 - beta2, step.eps,
        0.0 if step.decoupled else step.weight_decay, step.lr * step.weight_decay if step.decoupled else 0.0,
        LENGTH=LENGTH, num_warps=4,
    )  # fmt: skip


@triton.jit
def _square_sum(gradient, tile, size, LENGTH: constexpr):
    place = tile * LENGTH + tl.arange(0, LENGTH)
    g = tl.load(gradient + place, mask=place < size, other=0.0)
    return tl.sum(g * g, axis=0)


# Sums of squares: programs work on the four gradients one after the other, of which the last is one number.
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


# Count a step unless it is skipped, and correct the bias of the moments: in float64, for 1 − 0.999 has few digits left.
@triton.jit
def _count(steps, corrections, advance, lr, log_beta1, log_beta2):
    step = tl.load(steps) + advance
    tl.store(steps, step)
    exact = step.to(tl.float64)
    bias1 = (1.0 - tl.exp(exact * log_beta1)).to(tl.float32)
    bias2 = (1.0 - tl.exp(exact * log_beta2)).to(tl.float32)
    tl.store(corrections, lr / bias1)
    tl.store(corrections + 1, 1.0 / tl.sqrt(bias2))


# One program: is everything finite? The verdict is 1.0 if not, followed by the corrections of each parameter.
@triton.jit
def _judge(
    partial, programs, unexplained, p, step0, step1, step2, step3, seen, verdict, lr, log_beta1, log_beta2,
    LENGTH: constexpr,
):  # fmt: skip
    acc = tl.zeros((LENGTH,), tl.float32)
    for start in range(0, programs, LENGTH):
        place = start + tl.arange(0, LENGTH)
        acc += tl.load(partial + place, mask=place < programs, other=0.0)
    for start in range(0, p, LENGTH):
        place = start + tl.arange(0, LENGTH)
        acc += tl.load(unexplained + place, mask=place < p, other=0.0)
    skip = tl.where(tl.abs(tl.sum(acc, axis=0)) < float("inf"), 0.0, 1.0)  # false for NaN, too
    tl.store(verdict, skip)
    tl.store(seen, tl.maximum(tl.load(seen), skip))
    _count(step0, verdict + 1, 1.0 - skip, lr, log_beta1, log_beta2)
    _count(step1, verdict + 3, 1.0 - skip, lr, log_beta1, log_beta2)
    _count(step2, verdict + 5, 1.0 - skip, lr, log_beta1, log_beta2)
    _count(step3, verdict + 7, 1.0 - skip, lr, log_beta1, log_beta2)


@triton.jit
def _adam(
    parameter, gradient, first, second, tile, size, corrections, new1, beta2, new2, eps, decay, shrink,
    LENGTH: constexpr,
):  # fmt: skip
    place = tile * LENGTH + tl.arange(0, LENGTH)
    inside = place < size
    x = tl.load(parameter + place, mask=inside, other=0.0)
    g = tl.load(gradient + place, mask=inside, other=0.0) + decay * x
    m = tl.load(first + place, mask=inside, other=0.0)
    v = tl.load(second + place, mask=inside, other=0.0)
    m += new1 * (g - m)
    v = beta2 * v + new2 * (g * g)
    denominator = tl.sqrt(v) * tl.load(corrections + 1) + eps
    x = x - shrink * x - tl.load(corrections) * m / denominator
    tl.store(parameter + place, x, mask=inside)
    tl.store(first + place, m, mask=inside)
    tl.store(second + place, v, mask=inside)


# The step itself, unless the verdict is to skip it.
@triton.jit
def _update(
    x0, g0, m0, v0, x1, g1, m1, v1, x2, g2, m2, v2, x3, g3, m3, v3, size0, size1, size2, verdict,
    new1, beta2, new2, eps, decay, shrink, LENGTH: constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    end0 = tl.cdiv(size0, LENGTH)
    end1 = end0 + tl.cdiv(size1, LENGTH)
    end2 = end1 + tl.cdiv(size2, LENGTH)
    if tl.load(verdict) == 0.0:
        if program < end0:
            _adam(x0, g0, m0, v0, program, size0, verdict + 1, new1, beta2, new2, eps, decay, shrink, LENGTH)
        elif program < end1:
            _adam(x1, g1, m1, v1, program - end0, size1, verdict + 3, new1, beta2, new2, eps, decay, shrink, LENGTH)
        elif program < end2:
            _adam(x2, g2, m2, v2, program - end1, size2, verdict + 5, new1, beta2, new2, eps, decay, shrink, LENGTH)
        else:
            _adam(x3, g3, m3, v3, program - end2, 1, verdict + 7, new1, beta2, new2, eps, decay, shrink, LENGTH)
