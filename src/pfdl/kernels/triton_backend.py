"""Launches the Triton kernels; the caller has made sure that there is a GPU, or Triton's interpreter."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from pfdl.kernels import triton_kernels
from pfdl.kernels.one_hidden import OneHidden, ParameterGradients

ROWS, UNITS, FEATURES = 16, 128, 32
"""Tile of the kernels that walk along the features: rows × hidden units in registers, features in a block."""

WARPS = 1
"""Warps a program has: the sum over hidden units then stays inside one warp."""

PARAMETER_TILE = (32, 64, 4)
"""Features, hidden units and warps of the kernel that walks along the rows."""

SCAN_LENGTH = 256


MAX_BLOCK_SUMS = 2**23
"""Floats one buffer of sums per block may hold (32 MiB); more rows than that allows are worked off in turns."""


class TritonBackend:
    """The closed form on a GPU."""

    @staticmethod
    def predict(net: OneHidden) -> tuple[Tensor, Tensor | None]:
        """See :class:`pfdl.kernels.one_hidden.Backend`."""
        out = torch.empty(net.u.shape, dtype=torch.float32, device=net.u.device)
        base = None
        turns = list(_turns(net))
        for rows in turns:
            base = _predict(net.rows(rows), out[rows])
        return out, base if len(turns) == 1 else None

    @staticmethod
    def parameter_gradients(net: OneHidden, base: Tensor | None, gradient: Tensor) -> ParameterGradients:
        """See :class:`pfdl.kernels.one_hidden.Backend`."""
        parts = [_parameter_gradients(net.rows(rows), base, gradient[rows]) for rows in _turns(net)]
        if len(parts) == 1:
            return parts[0]
        *sums, _ = zip(*parts, strict=True)
        weight, offset, readout, constant = (torch.stack(part).sum(0) for part in sums)
        return ParameterGradients(weight, offset, readout, constant, torch.cat([part.shared for part in parts]))

    @staticmethod
    def feature_gradient(net: OneHidden, base: Tensor | None, gradient: Tensor) -> Tensor:
        """See :class:`pfdl.kernels.one_hidden.Backend`."""
        out = torch.empty(net.u.shape, dtype=torch.float32, device=net.u.device)
        for rows in _turns(net):
            _feature_gradient(net.rows(rows), base, gradient[rows], out[rows])
        return out


def _turns(net: OneHidden) -> Iterator[slice]:
    n, p, h, _ = _sizes(net)
    length = max(1, MAX_BLOCK_SUMS // (_tiles(p, FEATURES) * h))
    return (slice(start, min(start + length, n)) for start in range(0, n, length))


def _predict(net: OneHidden, out: Tensor) -> Tensor:
    n, p, h, visible = _sizes(net)
    base = _base(net)
    tile = _tile(net)
    triton_kernels.predict[(_tiles(n, tile["ROWS"]), _tiles(p, FEATURES))](
        net.u, net.weight, net.offset, net.readout, net.constant, base, out, n, p, h, visible,
        STRICT=net.strict, GELU=net.activation == "gelu", **tile,
    )  # fmt: skip
    return base


def _feature_gradient(net: OneHidden, base: Tensor | None, gradient: Tensor, out: Tensor) -> None:
    n, p, h, visible = _sizes(net)
    base = _base(net) if base is None else base
    prefix, total = _delta(net, base, gradient)
    tile = _tile(net)
    triton_kernels.feature_gradient[(_tiles(n, tile["ROWS"]), _tiles(p, FEATURES))](
        net.u, gradient, net.weight, net.offset, net.readout, base, prefix, total, out, n, p, h, visible,
        STRICT=net.strict, GELU=net.activation == "gelu", enable_fp_fusion=False, **tile,
    )  # fmt: skip


def _parameter_gradients(net: OneHidden, base: Tensor | None, gradient: Tensor) -> ParameterGradients:
    n, p, h, visible = _sizes(net)
    base = _base(net) if base is None else base
    prefix, total = _delta(net, base, gradient)
    features, units, warps = PARAMETER_TILE
    if net.strict:
        features = FEATURES  # the blocks that base and prefix belong to
    blocks = _tiles(p, features)
    correction = _empty(net, h, visible)
    readout_sums = _empty(net, blocks, h)
    offset_sums = total if net.strict else _empty(net, p, h)
    triton_kernels.parameter_sums[(blocks, _tiles(h, units))](
        net.u, gradient, net.weight, net.offset, net.readout, base, prefix, correction, offset_sums, readout_sums,
        n, p, h, visible, STRICT=net.strict, GELU=net.activation == "gelu", UNITS=units, FEATURES=features,
        num_warps=warps,
    )  # fmt: skip
    seen = net.u[:, :visible].to(torch.float32)
    return ParameterGradients(
        weight=torch.addmm(correction, total.T, seen, beta=-1, out=correction),
        offset=total.sum(0) if net.strict else offset_sums,
        readout=readout_sums.sum(0, keepdim=True),
        constant=gradient.sum().view(1),
        shared=total,
    )


def _base(net: OneHidden) -> Tensor:
    """Indexed: Σ_k u_k W_k, shape (n, h). Strict: the state at the first feature of each block, (blocks, n, h)."""
    n, p, h, visible = _sizes(net)
    blocks = _tiles(p, FEATURES)
    tile = _tile(net)
    own = _empty(net, blocks, n, h)
    following = torch.empty_like(own) if net.strict else own
    triton_kernels.block_sums[(_tiles(n, tile["ROWS"]), _tiles(h, tile["UNITS"]), blocks)](
        net.u, net.weight, own, following, n, p, h, visible, STRICT=net.strict, **tile
    )
    if not net.strict:
        return own.sum(0) if net.shared is None else own.sum(0).add_(net.shared)
    _scan(own, following)
    return own if net.shared is None else own.add_(net.shared)


def _delta(net: OneHidden, base: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """L at the first feature of each block, (blocks, n, h), used with strict sharing only, and Δ, (n, h)."""
    n, p, h, visible = _sizes(net)
    blocks = _tiles(p, FEATURES)
    tile = _tile(net)
    sums = _empty(net, blocks, n, h)
    triton_kernels.delta_sums[(_tiles(n, tile["ROWS"]), _tiles(h, tile["UNITS"]), blocks)](
        net.u, gradient, net.weight, net.offset, net.readout, base, sums, n, p, h, visible,
        STRICT=net.strict, GELU=net.activation == "gelu", enable_fp_fusion=False, **tile,
    )  # fmt: skip
    if net.strict:
        return sums, _scan(sums, None)
    return sums, sums.sum(0)


def _scan(own: Tensor, following: Tensor | None) -> Tensor:
    """Turn block sums into prefix sums, in place, add following's suffix sums, and return the total of own."""
    blocks, n, h = own.shape
    total = torch.empty(n, h, dtype=own.dtype, device=own.device)
    triton_kernels.scan_blocks[(_tiles(n * h, SCAN_LENGTH),)](
        own, own if following is None else following, total, blocks, n * h,
        SUFFIX=following is not None, LENGTH=SCAN_LENGTH,
    )  # fmt: skip
    return total


def _sizes(net: OneHidden) -> tuple[int, int, int, int]:
    n, p = net.u.shape
    visible, h = net.weight.shape
    return n, p, h, visible


def _tile(net: OneHidden) -> dict[str, Any]:
    units = min(UNITS, 1 << (net.weight.shape[1] - 1).bit_length())
    return {"ROWS": ROWS, "UNITS": units, "FEATURES": FEATURES, "num_warps": WARPS}


def _tiles(size: int, tile: int) -> int:
    return -(-size // tile)


def _empty(net: OneHidden, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=net.u.device)
