"""The leave-one-out multi-layer perceptron in plain PyTorch: any depth, any activation, with
autograd.

A network that predicts feature j from all the others has the first-layer pre-activation

    pre_j  =  Σ_{k<j} before_k u_k  +  Σ_{k>j} after_k u_k  +  offset_j

where ``before_k`` is the weight of coordinate k as seen by features that come after it and
``after_k`` its weight as seen by features that come before it. The paper's network, which *removes*
coordinate j and so shifts all later ones by one place, has ``before_k = W[:, k]`` and ``after_k =
W[:, k-1]``; a network that *masks* coordinate j has ``before = after``.

Coordinates are grouped into blocks of ``BLOCK``. What lies outside the block of j is the same for
all j of the block, a sum over the blocks before it and over those after it; what lies inside is one
small matrix product with the diagonal left out. That makes O(n·p·h) work out of O(n·p²·h), all of
it in matrix products, and u_j never enters pre_j, not even to be subtracted again: pre_j is the
same to the last bit, however large u_j is.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

BLOCK = 16
"""Coordinates per block: large enough to be a matrix product, small enough to waste little work
inside it.
"""

CHUNK_ELEMENTS = {"cpu": 2**20, "cuda": 2**25}
"""Floats one hidden-layer chunk may hold: what fits the cache of a CPU, what fills a GPU."""

Layer = tuple[Tensor, Tensor]
"""Weight (out, in) and bias (out) of a linear layer."""


def leave_one_out_mlp(
    u: Tensor,
    weight: Tensor,
    offset: Tensor,
    layers: Sequence[Layer],
    activation: Callable[[Tensor], Tensor],
) -> Tensor:
    """Apply a network to every leave-one-out version of each row of ``u``.

    The work is cut into chunks that are recomputed in the backward pass, so that memory stays
    bounded.

    Args:
        u: Features, shape (n, p).
        weight: First layer's weight by coordinate, shape (p − 1, h) if coordinate j is removed, (p,
            h) if it is masked.
        offset: What is added to the pre-activations, shape (h,), or (p, h) if each feature has its
            own.
        layers: The linear layers after the first; the last has one output. Empty if the first layer
            has width 1 and is the last.
        activation: The elementwise function between layers.

    Returns:
        The predictions, shape (n, p).
    """
    n, p = u.shape
    block = min(BLOCK, p)
    width = max([weight.shape[1], *(layer.shape[0] for layer, _ in layers)])
    chunk = chunk_size(u, block * width)

    weight_before, weight_after = by_coordinate(weight, p)
    before = in_blocks(weight_before, block)
    after = in_blocks(weight_after, block)
    offset = in_blocks(offset.expand(p, -1), block)
    is_one_chunk = chunk.rows >= n and chunk.blocks >= len(before)

    def predict(u_blocks: Tensor, outside: Tensor, first: int) -> Tensor:
        some = slice(first, first + len(u_blocks))
        inside = u_blocks @ inside_blocks(before[some], after[some])
        of_each_feature: Tensor = inside.unflatten(-1, (block, -1))
        hidden = of_each_feature + outside[:, :, None] + offset[some, None]
        for weight, bias in layers:
            hidden = F.linear(activation(hidden), weight, bias)
        return hidden.squeeze(-1)

    def predict_in_chunks(u_blocks: Tensor, outside: Tensor) -> Tensor:
        if is_one_chunk:
            return predict(u_blocks, outside, 0)
        parts = []
        for first in range(0, len(u_blocks), chunk.blocks):
            some = slice(first, first + chunk.blocks)
            inputs = (u_blocks[some], outside[some], first)
            parts.append(checkpoint(predict, *inputs, use_reentrant=False))
        return torch.cat(parts)

    predictions = []
    # Once also without rows, so that there is a graph to the weights
    for first_row in range(0, max(1, n), chunk.rows):
        u_rows = u[first_row : first_row + chunk.rows]
        u_blocks = in_blocks(u_rows.T, block).transpose(1, 2)  # (blocks, rows, block)
        outside = sums_of_others(u_blocks @ before, u_blocks @ after)
        of_rows = predict_in_chunks(u_blocks, outside)
        predictions.append(of_rows.transpose(0, 1).flatten(1)[:, :p])
    return torch.cat(predictions)


class ChunkSize(NamedTuple):
    """How many rows, and blocks of these, are worked on at a time."""

    rows: int
    blocks: int


def chunk_size(u: Tensor, elements: int) -> ChunkSize:
    """Return how many rows and blocks of ``u`` a chunk has, if a row's block takes so many floats
    in a hidden layer.
    """
    budget = CHUNK_ELEMENTS.get(u.device.type, CHUNK_ELEMENTS["cuda"])
    rows = max(1, min(len(u), budget // elements))
    blocks = max(1, budget // (rows * elements))
    return ChunkSize(rows, blocks)


def by_coordinate(weight: Tensor, p: int) -> tuple[Tensor, Tensor]:
    """Return the weights of each coordinate for the features after it and for those before it, both
    (p, h).
    """
    if len(weight) == p:
        return weight, weight
    # Removing coordinate j shifts those after it by one place, so each has two weights.
    return F.pad(weight, (0, 0, 0, 1)), F.pad(weight, (0, 0, 1, 0))


def in_blocks(coordinates: Tensor, block: int) -> Tensor:
    """Group the leading dimension: (p, m) to (blocks, block, m), padded with zeros."""
    padded = F.pad(coordinates, (0, 0, 0, -len(coordinates) % block))
    blocks: Tensor = padded.unflatten(0, (-1, block))
    return blocks


def sums_of_others(from_left: Tensor, from_right: Tensor) -> Tensor:
    """Return for each block the sum over the blocks before it of one tensor and over those after it
    of the other.
    """
    zero = torch.zeros_like(from_left[:1])
    left = torch.cat([zero, from_left[:-1].cumsum(0)])
    right = torch.cat([from_right[1:].flip(0).cumsum(0).flip(0), zero])
    return left + right


def inside_blocks(before: Tensor, after: Tensor) -> Tensor:
    """Return the weights of a block's coordinates k for its features j, (blocks, k, j·h): zero
    where k is j.
    """
    ones = before.new_ones(before.shape[1], before.shape[1])
    is_later = torch.triu(ones, 1)[..., None]
    is_earlier = torch.tril(ones, -1)[..., None]
    within = before[:, :, None] * is_later + after[:, :, None] * is_earlier
    return within.flatten(2)
