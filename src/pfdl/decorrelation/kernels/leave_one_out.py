"""The leave-one-out multi-layer perceptron in plain PyTorch, exact and with bounded memory.

A network that predicts feature j from all the others has the first-layer pre-activation

    pre_j  =  Σ_{k<j} before_k u_k  +  Σ_{k>j} after_k u_k  +  offset_j

where ``before_k`` is the weight of coordinate k as seen by features that come after it and ``after_k`` its weight
as seen by features that come before it. The paper's network, which *removes* coordinate j and so shifts all later
ones by one place, has ``before_k = W[:, k]`` and ``after_k = W[:, k-1]``; a network that *masks* coordinate j has
``before = after``.

Coordinates are grouped into blocks of ``BLOCK``. What lies outside the block of j is the same for all j of the
block, an exclusive sum over blocks; what lies inside is one small matrix product with the diagonal left out. That
makes O(n·p·h) work out of O(n·p²·h), all of it in matrix products, and u_j never enters pre_j, not even to be
subtracted again: ∂pre_j/∂u_j is zero exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

BLOCK = 16
"""Coordinates per block: large enough to be a matrix product, small enough to waste little work inside it."""

CHUNK_ELEMENTS = {"cpu": 2**20, "cuda": 2**25}
"""Floats one hidden-layer chunk may hold: what fits the cache of a CPU, what fills a GPU."""

Layer = tuple[Tensor, Tensor]
"""Weight (out, in) and bias (out) of a linear layer."""


def leave_one_out_mlp(
    u: Tensor,
    before: Tensor,
    after: Tensor,
    offset: Tensor,
    layers: Sequence[Layer],
    activation: Callable[[Tensor], Tensor],
    shared: Tensor | None = None,
    max_elements: int | None = None,
) -> Tensor:
    """Apply a network to every leave-one-out version of each row of ``u``.

    Args:
        u: Features, shape (n, p).
        before: Weights of each coordinate for the features after it, shape (p, h).
        after: Weights of each coordinate for the features before it, shape (p, h).
        offset: What is added to the pre-activation of each feature, shape (p, h).
        layers: The linear layers after the first; the last has one output. Empty if the first layer has width 1
            and is the last.
        activation: The elementwise function between layers.
        shared: Added to the pre-activation of all features of a row, shape (n, h); for inputs always visible.
        max_elements: Floats a hidden layer may hold at a time. Above it the work is cut into chunks that are
            recomputed in the backward pass. By default it depends on the device.

    Returns:
        The predictions, shape (n, p).
    """
    n, p = u.shape
    width = max(before.shape[1], *(weight.shape[0] for weight, _ in layers)) if layers else before.shape[1]
    block = min(BLOCK, p)
    budget = CHUNK_ELEMENTS.get(u.device.type, CHUNK_ELEMENTS["cuda"]) if max_elements is None else max_elements
    rows = max(1, min(n, budget // (block * width)))
    blocks = max(1, budget // (rows * block * width))

    before_blocks, after_blocks = _in_blocks(before, block), _in_blocks(after, block)
    offset_blocks = _in_blocks(offset, block)
    one_chunk = rows >= n and blocks >= before_blocks.shape[0]

    def predict(u_blocks: Tensor, outside: Tensor, first: int) -> Tensor:
        last = first + u_blocks.shape[0]
        return _predict_blocks(
            u_blocks,
            outside,
            before_blocks[first:last],
            after_blocks[first:last],
            offset_blocks[first:last],
            layers,
            activation,
        )

    predictions = []
    for first_row in range(0, max(1, n), rows):  # once also without rows, so that there is a graph to the weights
        chunk = u[first_row : first_row + rows]
        u_blocks = _in_blocks(chunk.T, block).transpose(1, 2)  # (blocks, rows, block)
        outside = _outside_blocks(u_blocks, before_blocks, after_blocks)
        if shared is not None:
            outside = outside + shared[first_row : first_row + rows]
        parts = []
        for first in range(0, u_blocks.shape[0], blocks):
            arguments = (u_blocks[first : first + blocks], outside[first : first + blocks], first)
            parts.append(predict(*arguments) if one_chunk else checkpoint(predict, *arguments, use_reentrant=False))
        together = torch.cat(parts)  # (blocks, rows, block)
        predictions.append(together.transpose(0, 1).flatten(1)[:, :p])
    return torch.cat(predictions)


def _in_blocks(coordinates: Tensor, block: int) -> Tensor:
    """Group the leading dimension: (p, m) to (blocks, block, m), padded with zeros."""
    p, m = coordinates.shape
    return F.pad(coordinates, (0, 0, 0, -p % block)).view(-(-p // block), block, m)


def _outside_blocks(u: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Return for each block what all coordinates outside it add to the pre-activation: (blocks, rows, h)."""
    from_left = torch.bmm(u, before)
    from_right = torch.bmm(u, after)
    zero = torch.zeros_like(from_left[:1])
    left = torch.cat([zero, from_left[:-1].cumsum(0)])
    right = torch.cat([from_right[1:].flip(0).cumsum(0).flip(0), zero])
    return left + right


def _predict_blocks(
    u: Tensor,
    outside: Tensor,
    before: Tensor,
    after: Tensor,
    offset: Tensor,
    layers: Sequence[Layer],
    activation: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return the network's output for every feature of some blocks: (blocks, rows, block)."""
    count, rows, block = u.shape
    width = before.shape[-1]
    comes_before = torch.triu(u.new_ones(block, block), 1)[..., None]  # [k, j]: k < j
    comes_after = torch.tril(u.new_ones(block, block), -1)[..., None]  # [k, j]: k > j
    within = before[:, :, None] * comes_before + after[:, :, None] * comes_after  # (blocks, k, j, h)
    hidden = torch.bmm(u, within.view(count, block, block * width)).view(count, rows, block, width)
    hidden = hidden + outside[:, :, None] + offset[:, None]
    for weight, bias in layers:
        hidden = F.linear(activation(hidden), weight, bias)
    return hidden.squeeze(-1)
