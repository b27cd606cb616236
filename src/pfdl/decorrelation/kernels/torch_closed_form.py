"""The leave-one-out network with one hidden layer in closed form, in plain PyTorch: what runs on a
CPU.

Pre-activations are made as in :mod:`pfdl.decorrelation.kernels.leave_one_out`, in blocks of
features, so that no feature enters its own prediction. With Ũ_j = v·act(pre_j) + c, G = ∂L/∂Ũ, δ_j
= G_j act'(pre_j) and D_b the sum of δ over the features of block b, the gradients are, times v in
the first two lines,

    ∂u_k       =  Σ_j within_kj·δ_j  +  before_k·(D of later blocks)  +  after_k·(D of earlier
    blocks) ∂before_k  =  Σ_i u_k (Σ_{j>k} δ_j  +  D of later blocks)         ∂after_k likewise
    ∂v         =  Σ_ij G_j act(pre_j)                                 ∂c = Σ_ij G_j

where j runs over the features of the block of k. There is no autograd inside: a pass makes the
pre-activations of a few blocks at a time in memory that stays in the cache of a processor core, and
keeps none of them.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl.decorrelation.kernels.function import OneHidden
from pfdl.decorrelation.kernels.leave_one_out import BLOCK

ROWS = 256
"""Rows worked on at a time, so that the sums per block stay small."""

GROUP_ELEMENTS = 2**19
"""Pre-activations made at a time."""

KEPT_ELEMENTS = 2**21
"""Pre-activations that are kept for the backward pass; more are made again, which costs less than
memory.
"""


class _Blocks(NamedTuple):
    """A network and some rows, by blocks of features; the last block is filled up with zeros."""

    u: Tensor  # (blocks, n, block)
    before: Tensor  # weights of each feature k for those after it, (blocks, block, h)
    after: Tensor  # and for those before it, (blocks, block, h)
    # weights of each feature k for those of its own block, zero for itself, (blocks, k, j·h)
    within: Tensor
    outside: (
        Tensor  # what the features of all other blocks add to the pre-activations, (blocks, n, h)
    )
    offset: Tensor  # (blocks, block, h)
    later: Tensor  # 1 where j > k, (k, j, 1)
    kept: Tensor | None  # the pre-activations, (blocks, n, block, h), if they are few


def predict(net: OneHidden) -> tuple[Tensor, _Blocks | None]:
    """Return Ũ, shape (n, p), and the blocks if all rows were worked off at once."""
    out, blocks = torch.empty_like(net.u), None
    for u, turn in zip(net.u.split(ROWS), out.split(ROWS), strict=True):
        blocks = _lay_out(net, u)
        found = torch.empty_like(blocks.u)
        for some, pre, spare in _pre_activations(blocks):
            found[some] = _activate(net, pre, spare) @ net.readout
        turn.copy_(found.transpose(0, 1).flatten(1)[:, : net.u.shape[1]])
    return out.add_(net.constant), blocks if len(out) <= ROWS else None


def parameter_gradients(
    net: OneHidden, base: _Blocks | None, gradient: Tensor
) -> tuple[Tensor, ...]:
    """Return the gradients of weight, offset, readout and constant from G, shape (n, p)."""
    (_, p), (visible, h) = net.u.shape, net.weight.shape
    of_weight, of_readout = torch.zeros_like(net.weight), torch.zeros_like(net.readout)
    of_offset = torch.zeros_like(net.offset)
    for u, of_rows in zip(net.u.split(ROWS), gradient.split(ROWS), strict=True):
        blocks = base or _lay_out(net, u)
        of_out = (
            F.pad(of_rows, (0, -p % BLOCK)).unflatten(1, (-1, BLOCK)).transpose(0, 1).contiguous()
        )
        sums = torch.empty_like(blocks.outside)
        of_before, of_after, offsets = torch.empty(
            3, *blocks.before.shape, dtype=u.dtype, device=u.device
        )
        for some, pre, spare in _pre_activations(blocks, are_made=base is not None):
            of_readout += of_out[some].flatten() @ _activate(net, pre, spare).flatten(0, -2)
            delta = _delta(net, pre, of_out[some], spare)
            torch.sum(delta, 2, out=sums[some])
            if net.offset.ndim == 2:
                torch.sum(delta, 1, out=offsets[some])
            # (blocks, k, j, h)
            within = torch.bmm(blocks.u[some].mT, delta.flatten(2)).unflatten(2, (BLOCK, h))
            of_before[some] = (blocks.later.mT @ within)[:, :, 0]
            of_after[some] = (blocks.later.transpose(0, 1).mT @ within)[:, :, 0]
        of_weight += of_before.baddbmm_(blocks.u.mT, _sums_beyond(sums, -1)).flatten(0, 1)[:visible]
        of_weight += of_after.baddbmm_(blocks.u.mT, _sums_beyond(sums, 1)).flatten(0, 1)[
            p - visible : p
        ]
        of_offset += offsets.flatten(0, 1)[:p] if net.offset.ndim == 2 else sums.sum((0, 1))
    return (
        of_weight.mul_(net.readout).T,
        of_offset.mul_(net.readout),
        of_readout[None],
        gradient.sum().view(1),
    )


def feature_gradient(net: OneHidden, base: _Blocks | None, gradient: Tensor) -> Tensor:
    """Return the gradient of u, shape (n, p), from G."""
    p = net.u.shape[1]
    out = torch.empty_like(net.u)
    for u, of_rows, turn in zip(
        net.u.split(ROWS), gradient.split(ROWS), out.split(ROWS), strict=True
    ):
        blocks = base or _lay_out(net, u)
        of_out = (
            F.pad(of_rows, (0, -p % BLOCK)).unflatten(1, (-1, BLOCK)).transpose(0, 1).contiguous()
        )
        sums, of_u = torch.empty_like(blocks.outside), torch.empty_like(blocks.u)
        for some, pre, spare in _pre_activations(blocks, are_made=base is not None):
            delta = _delta(net, pre, of_out[some], spare)
            torch.sum(delta, 2, out=sums[some])
            within = blocks.within[some].unflatten(2, (BLOCK, -1)) * net.readout
            torch.bmm(delta.flatten(2), within.flatten(2).mT, out=of_u[some])
        sums *= net.readout
        of_u.baddbmm_(_sums_beyond(sums, -1), blocks.before.mT).baddbmm_(
            _sums_beyond(sums, 1), blocks.after.mT
        )
        turn.copy_(of_u.transpose(0, 1).flatten(1)[:, :p])
    return out


def _lay_out(net: OneHidden, u: Tensor) -> _Blocks:
    p = u.shape[1]
    missing = -p % BLOCK
    # Where coordinate j is removed, those after it are shifted by one place, so each coordinate has
    # two weights.
    removed = p - len(net.weight)
    before = F.pad(net.weight, (0, 0, 0, removed + missing)).unflatten(0, (-1, BLOCK))
    after = F.pad(net.weight, (0, 0, removed, missing)).unflatten(0, (-1, BLOCK))
    offset = F.pad(net.offset.expand(p, -1), (0, 0, 0, missing)).unflatten(0, (-1, BLOCK))
    u = F.pad(u, (0, missing)).unflatten(1, (-1, BLOCK)).transpose(0, 1).contiguous()
    outside = _sums_beyond(torch.bmm(u, before), 1).add_(_sums_beyond(torch.bmm(u, after), -1))
    later = torch.triu(u.new_ones(BLOCK, BLOCK), 1)[..., None]
    within = (
        (before[:, :, None] * later).addcmul_(after[:, :, None], later.transpose(0, 1)).flatten(2)
    )
    number, n, h = outside.shape
    kept = u.new_empty(number, n, BLOCK, h) if outside.numel() * BLOCK <= KEPT_ELEMENTS else None
    return _Blocks(u, before, after, within, outside, offset, later, kept)


def _pre_activations(
    blocks: _Blocks, are_made: bool = False
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield which blocks, their pre-activations (blocks, n, j, h) and a spare tensor, always in the
    same memory.
    """
    number, n, h = blocks.outside.shape
    size = min(number, max(1, GROUP_ELEMENTS // max(1, n * BLOCK * h)))
    spare = blocks.outside.new_empty(size, n, BLOCK, h)
    buffer = torch.empty_like(spare) if blocks.kept is None else spare
    for start in range(0, number, size):
        some = slice(start, min(start + size, number))
        pre = buffer[: some.stop - start] if blocks.kept is None else blocks.kept[some]
        if blocks.kept is None or not are_made:
            torch.add(blocks.outside[some][:, :, None], blocks.offset[some][:, None], out=pre)
            pre.flatten(2).baddbmm_(blocks.u[some], blocks.within[some])
        yield some, pre, spare[: some.stop - start]


def _activate(net: OneHidden, pre: Tensor, out: Tensor) -> Tensor:
    """Return the activations of pre-activations, which stay."""
    if net.activation == "gelu":
        torch.ops.aten.gelu.out(pre, out=out)
    else:
        torch.clamp_min(pre, 0, out=out)
    return out


def _delta(net: OneHidden, pre: Tensor, gradient: Tensor, out: Tensor) -> Tensor:
    """Return δ, (blocks, n, j, h), from G, (blocks, n, j)."""
    if net.activation == "gelu":
        out.copy_(gradient[..., None])
        torch.ops.aten.gelu_backward.grad_input(out, pre, grad_input=out)
    else:
        torch.ops.aten.threshold_backward.grad_input(gradient[..., None], pre, 0, grad_input=out)
    return out


def _sums_beyond(parts: Tensor, direction: int) -> Tensor:
    """Return for each part the sum of those before it, or with direction −1 after it, along the
    first dimension.

    PyTorch's own ``cumsum`` walks down one column after the other, against the order of memory:
    several times slower.
    """
    sums = torch.empty_like(parts)
    order = list(zip(sums.unbind(), parts.unbind(), strict=True))[::direction]
    order[0][0].zero_()
    for (total, part), (following, _) in pairwise(order):
        torch.add(total, part, out=following)
    return sums
