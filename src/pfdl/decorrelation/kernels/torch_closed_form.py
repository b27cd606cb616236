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
    # Weights of each feature k for those of its own block, zero for itself, (blocks, k, j·h)
    within: Tensor
    # What the features of all other blocks add to the pre-activations, (blocks, n, h)
    outside: Tensor
    offset: Tensor  # (blocks, block, h)
    later: Tensor  # 1 where j > k, (k, j, 1)
    kept: Tensor | None  # the pre-activations, (blocks, n, block, h), if they are few


class _Group(NamedTuple):
    """Some blocks and their pre-activations; the memory of both tensors is that of the last
    group.
    """

    some: slice
    pre: Tensor  # (blocks, n, j, h)
    spare: Tensor  # of the same shape


def predict(net: OneHidden) -> tuple[Tensor, _Blocks | None]:
    """Return Ũ, shape (n, p), and the blocks if all rows were worked off at once."""
    p = net.u.shape[1]
    out = torch.empty_like(net.u)
    blocks = None
    for u, out_rows in zip(net.u.split(ROWS), out.split(ROWS), strict=True):
        blocks = _lay_out(net, u)
        predicted = torch.empty_like(blocks.u)
        for group in _pre_activations(blocks):
            predicted[group.some] = _activate(net, group) @ net.readout
        out_rows.copy_(_in_columns(predicted, p))
    out.add_(net.constant)
    return out, blocks if len(out) <= ROWS else None


def parameter_gradients(
    net: OneHidden, base: _Blocks | None, gradient: Tensor
) -> tuple[Tensor, ...]:
    """Return the gradients of weight, offset, readout and constant from G, shape (n, p)."""
    p = net.u.shape[1]
    visible, h = net.weight.shape
    is_indexed = net.offset.ndim == 2
    of_weight = torch.zeros_like(net.weight)
    of_readout = torch.zeros_like(net.readout)
    of_offset = torch.zeros_like(net.offset)
    for u, of_rows in zip(net.u.split(ROWS), gradient.split(ROWS), strict=True):
        blocks = base or _lay_out(net, u)
        of_out = _in_blocks(of_rows)
        sums = torch.empty_like(blocks.outside)
        of_before = torch.empty_like(blocks.before)
        of_after = torch.empty_like(blocks.before)
        of_offsets = torch.empty_like(blocks.before)
        is_later = blocks.later.mT
        is_earlier = blocks.later.transpose(0, 1).mT
        for group in _pre_activations(blocks, are_made=base is not None):
            some = group.some
            activations = _activate(net, group).flatten(0, -2)
            of_readout += of_out[some].flatten() @ activations
            delta = _delta(net, group, of_out[some])
            torch.sum(delta, 2, out=sums[some])
            if is_indexed:
                torch.sum(delta, 1, out=of_offsets[some])
            products = torch.bmm(blocks.u[some].mT, delta.flatten(2))
            within = products.unflatten(2, (BLOCK, h))  # (blocks, k, j, h)
            of_before[some] = (is_later @ within)[:, :, 0]
            of_after[some] = (is_earlier @ within)[:, :, 0]
        of_before.baddbmm_(blocks.u.mT, _sums_beyond(sums, -1))
        of_after.baddbmm_(blocks.u.mT, _sums_beyond(sums, 1))
        of_weight += of_before.flatten(0, 1)[:visible]
        of_weight += of_after.flatten(0, 1)[p - visible : p]
        of_offset += of_offsets.flatten(0, 1)[:p] if is_indexed else sums.sum((0, 1))
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
    rows = zip(net.u.split(ROWS), gradient.split(ROWS), out.split(ROWS), strict=True)
    for u, of_rows, out_rows in rows:
        blocks = base or _lay_out(net, u)
        of_out = _in_blocks(of_rows)
        sums = torch.empty_like(blocks.outside)
        of_u = torch.empty_like(blocks.u)
        for group in _pre_activations(blocks, are_made=base is not None):
            some = group.some
            delta = _delta(net, group, of_out[some])
            torch.sum(delta, 2, out=sums[some])
            within = blocks.within[some].unflatten(2, (BLOCK, -1)) * net.readout
            torch.bmm(delta.flatten(2), within.flatten(2).mT, out=of_u[some])
        sums *= net.readout
        of_u.baddbmm_(_sums_beyond(sums, -1), blocks.before.mT)
        of_u.baddbmm_(_sums_beyond(sums, 1), blocks.after.mT)
        out_rows.copy_(_in_columns(of_u, p))
    return out


def _in_blocks(columns: Tensor) -> Tensor:
    """Return one column per feature, (n, p), by blocks of features: (blocks, n, block)."""
    padded = F.pad(columns, (0, -columns.shape[1] % BLOCK))
    blocks: Tensor = padded.unflatten(1, (-1, BLOCK))
    return blocks.transpose(0, 1).contiguous()


def _in_columns(blocks: Tensor, p: int) -> Tensor:
    """Return blocks of features, (blocks, n, block), as one column per feature: (n, p)."""
    return blocks.transpose(0, 1).flatten(1)[:, :p]


def _lay_out(net: OneHidden, u: Tensor) -> _Blocks:
    p = u.shape[1]
    missing = -p % BLOCK
    # Where coordinate j is removed, those after it are shifted by one place, so each coordinate has
    # two weights.
    removed = p - len(net.weight)
    before = F.pad(net.weight, (0, 0, 0, removed + missing))
    before = before.unflatten(0, (-1, BLOCK))
    after = F.pad(net.weight, (0, 0, removed, missing))
    after = after.unflatten(0, (-1, BLOCK))
    offset = F.pad(net.offset.expand(p, -1), (0, 0, 0, missing))
    offset = offset.unflatten(0, (-1, BLOCK))
    u_blocks = _in_blocks(u)
    from_earlier = _sums_beyond(torch.bmm(u_blocks, before), 1)
    from_later = _sums_beyond(torch.bmm(u_blocks, after), -1)
    outside = from_earlier.add_(from_later)
    later = torch.triu(u.new_ones(BLOCK, BLOCK), 1)[..., None]
    within = before[:, :, None] * later
    within.addcmul_(after[:, :, None], later.transpose(0, 1))
    number, n, h = outside.shape
    are_few = outside.numel() * BLOCK <= KEPT_ELEMENTS
    return _Blocks(
        u=u_blocks,
        before=before,
        after=after,
        within=within.flatten(2),
        outside=outside,
        offset=offset,
        later=later,
        kept=u.new_empty(number, n, BLOCK, h) if are_few else None,
    )


def _pre_activations(blocks: _Blocks, are_made: bool = False) -> Iterator[_Group]:
    """Yield the blocks in groups; what is not kept lies always in the same memory.

    Args:
        blocks: All of them.
        are_made: Whether those that are kept have been made before.
    """
    number, n, h = blocks.outside.shape
    of_a_block = max(1, n * BLOCK * h)
    size = min(number, max(1, GROUP_ELEMENTS // of_a_block))
    spare = blocks.outside.new_empty(size, n, BLOCK, h)
    are_kept = blocks.kept is not None
    buffer = torch.empty_like(spare) if blocks.kept is None else blocks.kept
    for start in range(0, number, size):
        some = slice(start, min(start + size, number))
        length = some.stop - start
        pre = buffer[some] if are_kept else buffer[:length]
        if not (are_kept and are_made):
            _fill(pre, blocks, some)
        yield _Group(some, pre, spare[:length])


def _fill(pre: Tensor, blocks: _Blocks, some: slice) -> None:
    """Compute the pre-activations of some blocks."""
    outside = blocks.outside[some][:, :, None]
    offset = blocks.offset[some][:, None]
    torch.add(outside, offset, out=pre)
    pre.flatten(2).baddbmm_(blocks.u[some], blocks.within[some])


def _activate(net: OneHidden, group: _Group) -> Tensor:
    """Return the activations of pre-activations, which stay."""
    out = group.spare
    if net.activation == "gelu":
        torch.ops.aten.gelu.out(group.pre, out=out)
    else:
        torch.clamp_min(group.pre, 0, out=out)
    return out


def _delta(net: OneHidden, group: _Group, gradient: Tensor) -> Tensor:
    """Return δ, (blocks, n, j, h), from G, (blocks, n, j)."""
    pre = group.pre
    out = group.spare
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
