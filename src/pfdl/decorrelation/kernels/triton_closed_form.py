"""The leave-one-out network with one hidden layer in closed form, by Triton kernels: what runs on a
GPU.

The first layer's pre-activations obey, with d_k = u_k − u_{k+1},

    indexed:  pre_j = base + offset_j − u_j W_j            base = Σ_k u_k W_k
    strict:   pre_j = state_j + offset                      state_{j+1} = state_j + d_j W_j

(W_k is the row of weights of coordinate k, the row index i of u is left out) and Ũ_j = v·act(pre_j)
+ c. With G = ∂L/∂Ũ, δ_j = G_j v act'(pre_j), Δ = Σ_j δ_j and L_j = Σ_{k<j} δ_k the gradients are

    indexed:  ∂u_k = W_k·(Δ − δ_k)                          ∂W_k = Σ_i u_k (Δ − δ_k)
    strict:   ∂u_k = W_k·(Δ − L_{k+1}) + W_{k-1}·L_k        ∂W_k = Σ_i u_k Δ − d_k L_{k+1}

so each is one pass over (i, j, h) in which every pre-activation is made where it is used and then
forgotten: nothing of size n·p·h is ever written. ``Δ − δ_k`` is taken before it is multiplied and
summed. Where only Ũ_k has a gradient, Δ is δ_k to the last bit, and ∂Ũ_k/∂u_k is zero exactly. The
running sums leave of a feature its rounding: in float32, one that is r times as large as the others
has an error of about r·10⁻⁷ in its own Ũ.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from triton import cdiv, next_power_of_2

from pfdl.decorrelation.kernels import triton_kernels
from pfdl.decorrelation.kernels.function import OneHidden

ROWS = 4
UNITS = 256
"""Tile of the kernels that walk along the features: rows × hidden units in registers."""

FEATURES = 32
MANY_FEATURES = 64
"""Features in a block: few, to have programs enough for all of a GPU; more from 2049 on, where
memory counts.
"""

WARPS = 1
"""Warps a program has: the sum over hidden units then stays inside one warp."""

INDEXED_PARAMETER_TILE = (32, 64, 8)
"""Features, hidden units and warps of the kernel that walks along the rows."""

STRICT_PARAMETER_TILE = (32, 32, 1)
"""Rows, hidden units and warps of the kernel that sums over rows while it walks along the features.
"""

SCAN_ELEMENTS = 4096
"""Numbers that a program of the sum along the blocks holds: all blocks, for a few rows and hidden
units.
"""

TRANSPOSED_SIDE = 32
"""Side of the tiles in which a matrix is transposed."""

MAX_BLOCK_SUMS = 2**23
"""Floats one buffer of sums per block may hold (32 MiB); more rows than that allows are worked off
in turns.
"""


def predict(net: OneHidden) -> tuple[Tensor, Tensor | None]:
    """Return Ũ, shape (n, p), and the base of the pre-activations if all rows were worked off at
    once.
    """
    out = _empty(net, *net.u.shape)
    base = None
    turns = list(_turns(net))
    for rows in turns:
        base = _predict(net.rows(rows), out[rows])
    return out, base if len(turns) == 1 else None


def parameter_gradients(
    net: OneHidden, base: Tensor | None, gradient: Tensor
) -> tuple[Tensor, ...]:
    """Return the gradients of weight, offset, readout and constant from G, shape (n, p)."""
    parts = [_parameter_gradients(net.rows(rows), base, gradient[rows]) for rows in _turns(net)]
    if len(parts) == 1:
        return parts[0]
    return tuple(torch.stack(part).sum(0) for part in zip(*parts, strict=True))


def feature_gradient(
    net: OneHidden, base: Tensor | None, gradient: Tensor, onto: Tensor | None = None
) -> Tensor:
    """Return the gradient of u, shape (n, p), from G; added to ``onto``, which is overwritten, if
    that is given.
    """
    out = _empty(net, *net.u.shape) if onto is None else onto
    for rows in _turns(net):
        _feature_gradient(net.rows(rows), base, gradient[rows], out[rows], onto is not None)
    return out


def _turns(net: OneHidden) -> Iterator[slice]:
    n, p, h, _ = _sizes(net)
    length = max(1, MAX_BLOCK_SUMS // (_blocks(p) * h))
    return (slice(start, min(start + length, n)) for start in range(0, n, length))


def _predict(net: OneHidden, out: Tensor) -> Tensor:
    base = _base(net)
    triton_kernels.predict[_row_grid(net)](
        *_tensors(net), net.constant, base, out, *_sizes(net), **_forms(net), **_tile(net)
    )
    return base


def _feature_gradient(
    net: OneHidden, base: Tensor | None, gradient: Tensor, out: Tensor, add: bool
) -> None:
    base = _base(net) if base is None else base
    prefix, total = _delta(net, base, gradient)
    triton_kernels.feature_gradient[_row_grid(net)](
        *_tensors(net),
        gradient,
        base,
        prefix,
        total,
        out,
        *_sizes(net),
        ADD=add,
        enable_fp_fusion=False,
        **_forms(net),
        **_tile(net),
    )


def _parameter_gradients(
    net: OneHidden, base: Tensor | None, gradient: Tensor
) -> tuple[Tensor, ...]:
    base = _base(net) if base is None else base
    prefix, total = _delta(net, base, gradient)
    if net.strict:
        weight, readout, offset, constant = _strict_sums(net, base, prefix, total, gradient)
    else:
        weight, offset, readout, constant = _indexed_sums(net, base, total, gradient)
    return weight, offset, readout[None], constant


def _indexed_sums(
    net: OneHidden, base: Tensor, total: Tensor, gradient: Tensor
) -> tuple[Tensor, ...]:
    """Return the gradients of W (h, p), of the offsets, of v and of c."""
    n, p, h, _ = _sizes(net)
    features, units, warps = INDEXED_PARAMETER_TILE
    blocks = cdiv(p, features)
    weight = _empty(net, h, p)
    offset = _empty(net, p, h)
    sums = _empty(net, blocks, h + 1)
    triton_kernels.indexed_parameter_sums[(blocks, cdiv(h, units))](
        *_tensors(net),
        gradient,
        base,
        total,
        weight,
        offset,
        sums,
        n,
        p,
        h,
        GELU=_is_gelu(net),
        UNITS=units,
        FEATURES=features,
        num_warps=warps,
    )
    return weight, offset, *sums.sum(0).split([h, 1])


def _strict_sums(
    net: OneHidden, base: Tensor, prefix: Tensor, total: Tensor, gradient: Tensor
) -> tuple[Tensor, ...]:
    """Return the gradients of W (h, p − 1), of v, of the offsets and of c."""
    n, p, h, visible = _sizes(net)
    rows, units, warps = STRICT_PARAMETER_TILE
    parts = cdiv(n, rows)
    blocks = _blocks(p)
    of_parts = _empty(net, parts, visible, h)
    sums = _empty(net, parts * blocks, 2 * h + 1)
    triton_kernels.strict_parameter_sums[(parts, cdiv(h, units), blocks)](
        *_tensors(net),
        gradient,
        base,
        prefix,
        total,
        of_parts,
        sums,
        *_sizes(net),
        GELU=_is_gelu(net),
        ROWS=rows,
        UNITS=units,
        FEATURES=_features(p),
        num_warps=warps,
    )
    weight = _empty(net, h, visible)
    side = TRANSPOSED_SIDE
    triton_kernels.sum_transposed[(cdiv(visible, side), cdiv(h, side))](
        of_parts, weight, parts, visible, h, SIDE=side
    )
    return weight, *sums.sum(0).split([h, h, 1])


def _base(net: OneHidden) -> Tensor:
    """Return Σ_k u_k W_k, (n, h), if indexed; if strict, the state at each block's first feature,
    (blocks, n, h).
    """
    own = _block_sums(net)
    following = torch.empty_like(own) if net.strict else own
    triton_kernels.block_sums[_unit_grid(net)](
        net.u, net.weight, own, following, *_sizes(net), STRICT=net.strict, **_tile(net)
    )
    if not net.strict:
        return own.sum(0)
    states, _ = _scan(own, following)
    return states


def _delta(net: OneHidden, base: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return L at the first feature of each block, (blocks, n, h), used with strict sharing only,
    and Δ, (n, h).
    """
    sums = _block_sums(net)
    triton_kernels.delta_sums[_unit_grid(net)](
        *_tensors(net),
        gradient,
        base,
        sums,
        *_sizes(net),
        enable_fp_fusion=False,
        **_forms(net),
        **_tile(net),
    )
    return _scan(sums, None) if net.strict else (sums, sums.sum(0))


def _scan(own: Tensor, following: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return own's sums before each block, with following's from it on added, and without following
    own's total.
    """
    blocks, n, h = own.shape
    out = torch.empty_like(own)
    total = own.new_empty(n, h)
    all_blocks = next_power_of_2(blocks)
    length = max(8, SCAN_ELEMENTS // all_blocks)
    triton_kernels.scan_blocks[(cdiv(n * h, length),)](
        own,
        own if following is None else following,
        out,
        total,
        blocks,
        n * h,
        SUFFIX=following is not None,
        LENGTH=length,
        BLOCKS=all_blocks,
    )
    return out, total


def _tensors(net: OneHidden) -> tuple[Tensor, ...]:
    """Return what most kernels read first."""
    return net.u, net.weight, net.offset, net.readout


def _sizes(net: OneHidden) -> tuple[int, int, int, int]:
    """Return n, p, h and the coordinates that W has, in the order of the kernels."""
    n, p = net.u.shape
    visible, h = net.weight.shape
    return n, p, h, visible


def _forms(net: OneHidden) -> dict[str, bool]:
    return {"STRICT": net.strict, "GELU": _is_gelu(net)}


def _is_gelu(net: OneHidden) -> bool:
    return net.activation == "gelu"


def _tile(net: OneHidden) -> dict[str, Any]:
    _, p, h, _ = _sizes(net)
    return {
        "ROWS": ROWS,
        "UNITS": min(UNITS, next_power_of_2(h)),
        "FEATURES": _features(p),
        "num_warps": WARPS,
    }


def _row_grid(net: OneHidden) -> tuple[int, int]:
    """Return the programs for tiles of rows and blocks of features, each over all hidden units."""
    n, p, _, _ = _sizes(net)
    return cdiv(n, ROWS), _blocks(p)


def _unit_grid(net: OneHidden) -> tuple[int, int, int]:
    """Return the programs for tiles of rows, of hidden units, and blocks of features."""
    rows, blocks = _row_grid(net)
    _, _, h, _ = _sizes(net)
    return rows, cdiv(h, _tile(net)["UNITS"]), blocks


def _block_sums(net: OneHidden) -> Tensor:
    """Return room for a sum per block of features, (blocks, n, h)."""
    n, p, h, _ = _sizes(net)
    return _empty(net, _blocks(p), n, h)


def _features(p: int) -> int:
    return FEATURES if p <= 2048 else MANY_FEATURES


def _blocks(p: int) -> int:
    blocks: int = cdiv(p, _features(p))
    return blocks


def _empty(net: OneHidden, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=net.u.device)
