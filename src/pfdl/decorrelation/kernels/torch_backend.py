"""The closed form of :mod:`pfdl.decorrelation.kernels.one_hidden` in plain PyTorch, a few features at a time.

The features are taken in groups so small that their pre-activations stay in the cache of a processor core. There is
no autograd inside: a pass reads and writes those pre-activations a handful of times and keeps none of them. All groups
of a pass work in the same few buffers, which stay in the cache, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from pfdl.decorrelation.kernels.losses import TorchLosses
from pfdl.decorrelation.kernels.one_hidden import OneHidden, ParameterGradients
from pfdl.decorrelation.kernels.torch_lanes import Lanes
from pfdl.decorrelation.kernels.torch_units import delta_of, dot, hidden_layer

GROUP_ELEMENTS = 2**18
"""Pre-activations made at a time."""


class TorchBackend(TorchLosses):
    """The closed form on any device, made for the CPU."""

    @staticmethod
    def predict(net: OneHidden) -> tuple[Tensor, Tensor | None]:
        """See :class:`pfdl.decorrelation.kernels.one_hidden.Backend`."""
        base = _base(net)
        out = _lanes(net, base).predict() if net.strict else _indexed_prediction(net, base)
        return out.contiguous().add_(net.constant), base

    @staticmethod
    def parameter_gradients(net: OneHidden, base: Tensor | None, gradient: Tensor) -> ParameterGradients:
        """See :class:`pfdl.decorrelation.kernels.one_hidden.Backend`."""
        base = _base(net) if base is None else base
        if net.strict:
            total, correction, readout = _lanes(net, base).weight_gradients(gradient)
            offset = total.sum(0)
        else:
            total, correction, readout, offset = _indexed_weight_gradients(net, base, gradient)
        visible = net.weight.shape[0]
        return ParameterGradients(
            weight=torch.addmm(correction.T, total.T, net.u[:, :visible], beta=-1),
            offset=offset,
            readout=readout[None],
            constant=gradient.sum().view(1),
            shared=total,
        )

    @staticmethod
    def feature_gradient(net: OneHidden, base: Tensor | None, gradient: Tensor, onto: Tensor | None = None) -> Tensor:
        """See :class:`pfdl.decorrelation.kernels.one_hidden.Backend`."""
        base = _base(net) if base is None else base
        strict = net.strict
        out = _lanes(net, base).feature_gradient(gradient) if strict else _indexed_gradient(net, base, gradient)
        return out.contiguous() if onto is None else onto.add_(out)


def _base(net: OneHidden) -> Tensor:
    """Return what the pre-activations of all features start from, shape (n, h)."""
    base = net.u[:, 1:] @ net.weight if net.strict else net.u @ net.weight
    if net.strict:
        base += net.offset
    return base if net.shared is None else base.add_(net.shared)


def _group_size(base: Tensor) -> int:
    return max(1, GROUP_ELEMENTS // base.numel())


def _lanes(net: OneHidden, base: Tensor) -> Lanes:
    return Lanes(net, base, _group_size(base))


class _Group(NamedTuple):
    """Some neighbouring features of an indexed g, and buffers of shape (group, n, h) for them.

    Attributes:
        features: Which features.
        pre: Their pre-activations.
        delta: Room for δ.
        spare: Room for anything.
    """

    features: slice
    pre: Tensor
    delta: Tensor
    spare: Tensor


def _groups(net: OneHidden, base: Tensor) -> Iterator[_Group]:
    columns, size = net.u.T.contiguous(), min(net.u.shape[1], _group_size(base))
    buffers = base.new_empty(3, size, *base.shape)
    for start in range(0, len(columns), size):
        features = slice(start, min(start + size, len(columns)))
        group = _Group(features, *buffers[:, : features.stop - start])
        torch.add(base, net.offset[features][:, None], out=group.pre)
        group.pre.addcmul_(columns[features][:, :, None], net.weight[features][:, None], value=-1)
        yield group


def _indexed_prediction(net: OneHidden, base: Tensor) -> Tensor:
    """Return Ũ without its constant, shape (n, p)."""
    out = net.u.new_empty(net.u.T.shape)
    for group in _groups(net, base):
        out[group.features] = hidden_layer(net, group.pre, group.spare) @ net.readout
    return out.T


def _indexed_weight_gradients(net: OneHidden, base: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return Δ, shape (n, h), what ∂W lacks from Σ_i u_k Δ, shape (p, h), ∂v, shape (h,), and ∂offset, from G."""
    total, readout = torch.zeros_like(base), torch.zeros_like(net.readout)
    correction, offset = torch.empty_like(net.weight), torch.empty_like(net.weight)
    columns = gradient.T.contiguous()
    for group in _groups(net, base):
        rows = columns[group.features]
        readout += rows.view(-1) @ hidden_layer(net, group.pre, group.spare).flatten(0, 1)
        delta = delta_of(net, group.pre, rows, group.delta)
        offset[group.features] = delta.sum(1)
        correction[group.features] = torch.bmm(net.u.T[group.features][:, None], delta)[:, 0]
        total += delta.sum(0)
    return total, correction, readout, offset


def _indexed_gradient(net: OneHidden, base: Tensor, gradient: Tensor) -> Tensor:
    """Return ∂u, shape (n, p), from G."""
    total, columns = torch.zeros_like(base), gradient.T.contiguous()
    for group in _groups(net, base):
        total += delta_of(net, group.pre, columns[group.features], group.delta).sum(0)
    out = torch.empty_like(columns)
    for group in _groups(net, base):
        rest = torch.sub(total, delta_of(net, group.pre, columns[group.features], group.delta), out=group.spare)
        out[group.features] = dot(rest, net.weight[group.features][:, None], group.spare)
    return out.T
