"""Launches the Triton kernels; the caller has made sure that there is a GPU, or Triton's interpreter."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from pfdl.decorrelation.kernels import triton_kernels
from pfdl.decorrelation.kernels.one_hidden import OneHidden, ParameterGradients

ROWS, UNITS = 4, 256
"""Tile of the kernels that walk along the features: rows × hidden units in registers."""

FEATURES, MANY_FEATURES = 32, 64
"""Features in a block: few, to have programs enough for all of a GPU; more from 2049 on, where memory counts."""

WARPS = 1
"""Warps a program has: the sum over hidden units then stays inside one warp."""

INDEXED_PARAMETER_TILE = (32, 64, 8)
"""Features, hidden units and warps of the kernel that walks along the rows."""

STRICT_PARAMETER_TILE = (64, 32, 1)
"""Rows, hidden units and warps of the kernel that sums over rows while it walks along the features."""

SCAN_LENGTH = 256


MAX_BLOCK_SUMS = 2**23
"""Floats one buffer of sums per block may hold (32 MiB); more rows than that allows are worked off in turns."""


class TritonBackend:
    """The closed form on a GPU."""

    @staticmethod
    def predict(net: OneHidden) -> tuple[Tensor, Tensor | None]:
        """See :class:`pfdl.decorrelation.kernels.one_hidden.Backend`."""
        out = torch.empty(net.u.shape, dtype=torch.float32, device=net.u.device)
        base = None
        turns = list(_turns(net))
        for rows in turns:
            base = _predict(net.rows(rows), out[rows])
        return out, base if len(turns) == 1 else None

    @staticmethod
    def parameter_gradients(net: OneHidden, base: Tensor | None, gradient: Tensor) -> ParameterGradients:
        """See :class:`pfdl.decorrelation.kernels.one_hidden.Backend`."""
        parts = [_parameter_gradients(net.rows(rows), base, gradient[rows]) for rows in _turns(net)]
        if len(parts) == 1:
            return parts[0]
        *sums, _ = zip(*parts, strict=True)
        weight, offset, readout, constant = (torch.stack(part).sum(0) for part in sums)
        return ParameterGradients(weight, offset, readout, constant, torch.cat([part.shared for part in parts]))

    @staticmethod
    def feature_gradient(net: OneHidden, base: Tensor | None, gradient: Tensor) -> Tensor:
        """See :class:`pfdl.decorrelation.kernels.one_hidden.Backend`."""
        out = torch.empty(net.u.shape, dtype=torch.float32, device=net.u.device)
        for rows in _turns(net):
            _feature_gradient(net.rows(rows), base, gradient[rows], out[rows])
        return out


def _turns(net: OneHidden) -> Iterator[slice]:
    n, p, h, _ = _sizes(net)
    length = max(1, MAX_BLOCK_SUMS // (_tiles(p, _features(p)) * h))
    return (slice(start, min(start + length, n)) for start in range(0, n, length))


def _predict(net: OneHidden, out: Tensor) -> Tensor:
    n, p, h, visible = _sizes(net)
    base = _base(net)
    tile = _tile(net)
    triton_kernels.predict[(_tiles(n, tile["ROWS"]), _tiles(p, _features(p)))](
        net.u, net.weight, net.offset, net.readout, net.constant, base, out, n, p, h, visible,
        STRICT=net.strict, GELU=net.activation == "gelu", **tile,
    )  # fmt: skip
    return base


def _feature_gradient(net: OneHidden, base: Tensor | None, gradient: Tensor, out: Tensor) -> None:
    n, p, h, visible = _sizes(net)
    base = _base(net) if base is None else base
    prefix, total = _delta(net, base, gradient)
    tile = _tile(net)
    triton_kernels.feature_gradient[(_tiles(n, tile["ROWS"]), _tiles(p, _features(p)))](
        net.u, gradient, net.weight, net.offset, net.readout, base, prefix, total, out, n, p, h, visible,
        STRICT=net.strict, GELU=net.activation == "gelu", enable_fp_fusion=False, **tile,
    )  # fmt: skip


def _parameter_gradients(net: OneHidden, base: Tensor | None, gradient: Tensor) -> ParameterGradients:
    base = _base(net) if base is None else base
    prefix, total = _delta(net, base, gradient)
    if net.strict:
        correction, readout = _strict_sums(net, base, prefix, gradient)
        offset = total.sum(0)
    else:
        correction, offset, readout = _indexed_sums(net, base, gradient)
    seen = net.u[:, : net.weight.shape[0]].to(torch.float32)
    return ParameterGradients(
        weight=torch.addmm(correction, total.T, seen, beta=-1, out=correction),
        offset=offset,
        readout=readout.view(-1, readout.shape[-1]).sum(0, keepdim=True),
        constant=gradient.sum().view(1),
        shared=total,
    )


def _indexed_sums(net: OneHidden, base: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    n, p, h, _ = _sizes(net)
    features, units, warps = INDEXED_PARAMETER_TILE
    blocks = _tiles(p, features)
    correction, offset, readout = _empty(net, h, p), _empty(net, p, h), _empty(net, blocks, h)
    triton_kernels.indexed_parameter_sums[(blocks, _tiles(h, units))](
        net.u, gradient, net.weight, net.offset, net.readout, base, correction, offset, readout, n, p, h,
        GELU=net.activation == "gelu", UNITS=units, FEATURES=features, num_warps=warps,
    )  # fmt: skip
    return correction, offset, readout


def _strict_sums(net: OneHidden, base: Tensor, prefix: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    n, p, h, visible = _sizes(net)
    rows, units, warps = STRICT_PARAMETER_TILE
    parts, blocks = _tiles(n, rows), _tiles(p, _features(p))
    correction, readout = _empty(net, parts, visible, h), _empty(net, parts, blocks, h)
    triton_kernels.strict_parameter_sums[(parts, _tiles(h, units), blocks)](
        net.u, gradient, net.weight, net.offset, net.readout, base, prefix, correction, readout, n, p, h, visible,
        GELU=net.activation == "gelu", ROWS=rows, UNITS=units, FEATURES=_features(p), num_warps=warps,
    )  # fmt: skip
    return correction.sum(0).T.contiguous(), readout


def _base(net: OneHidden) -> Tensor:
    """Return Σ_k u_k W_k, (n, h), if indexed; if strict, the state at each block's first feature, (blocks, n, h)."""
    n, p, h, visible = _sizes(net)
    blocks = _tiles(p, _features(p))
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
    """Return L at the first feature of each block, (blocks, n, h), used with strict sharing only, and Δ, (n, h)."""
    n, p, h, visible = _sizes(net)
    blocks = _tiles(p, _features(p))
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
    return {"ROWS": ROWS, "UNITS": units, "FEATURES": _features(net.u.shape[1]), "num_warps": WARPS}


def _features(p: int) -> int:
    return FEATURES if p <= 2048 else MANY_FEATURES


def _tiles(size: int, tile: int) -> int:
    return -(-size // tile)


def _empty(net: OneHidden, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=net.u.device)
