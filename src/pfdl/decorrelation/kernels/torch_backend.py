"""The closed form of :mod:`pfdl.decorrelation.kernels.one_hidden` in plain PyTorch, a few features at a time.

The features are taken in groups so small that their pre-activations stay in the cache of a processor core. There is
no autograd inside: a pass reads and writes those pre-activations a handful of times and keeps none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl.decorrelation.kernels.losses import TorchLosses
from pfdl.decorrelation.kernels.one_hidden import OneHidden, ParameterGradients

GROUP_ELEMENTS = 2**18
"""Pre-activations made at a time."""


class TorchBackend(TorchLosses):
    """The closed form on any device, made for the CPU."""

    @staticmethod
    def predict(net: OneHidden) -> tuple[Tensor, Tensor | None]:
        """See :class:`pfdl.decorrelation.kernels.one_hidden.Backend`."""
        base = _base(net)
        out = torch.empty_like(net.u)
        for group in _groups(net, base):
            hidden = torch.relu_(group.pre) if net.activation == "relu" else F.gelu(group.pre)
            out[:, group.features] = (hidden @ net.readout).T
        return out.add_(net.constant), base

    @staticmethod
    def parameter_gradients(net: OneHidden, base: Tensor | None, gradient: Tensor) -> ParameterGradients:
        """See :class:`pfdl.decorrelation.kernels.one_hidden.Backend`."""
        u, p = net.u, net.u.shape[1]
        base = _base(net) if base is None else base
        total = torch.zeros_like(base)
        correction = torch.empty_like(net.weight)
        offset = net.weight.new_empty(p, net.weight.shape[1])
        readout = torch.zeros_like(net.readout)
        for group in _groups(net, base):
            rows = gradient[:, group.features].T  # (group, n)
            hidden = torch.relu(group.pre) if net.activation == "relu" else F.gelu(group.pre)
            readout += rows.reshape(-1) @ hidden.flatten(0, 1)
            delta = _delta(net, group, gradient)
            if net.strict:
                until = _running_sum(delta, total)
                steps = u[:, group.features] - _shifted(u, group.features)
                kept = min(group.features.stop, p - 1) - group.features.start
                correction[group.features] = torch.bmm(steps.T[:kept, None], until[:kept])[:, 0]
                total = until[-1]
            else:
                offset[group.features] = delta.sum(1)
                correction[group.features] = torch.bmm(u.T[group.features][:, None], delta)[:, 0]
                total += delta.sum(0)
        visible = net.weight.shape[0]
        return ParameterGradients(
            weight=torch.addmm(correction.T, total.T, u[:, :visible], beta=-1),
            offset=total.sum(0) if net.strict else offset,
            readout=readout[None],
            constant=gradient.sum().view(1),
            shared=total,
        )

    @staticmethod
    def feature_gradient(net: OneHidden, base: Tensor | None, gradient: Tensor, onto: Tensor | None = None) -> Tensor:
        """See :class:`pfdl.decorrelation.kernels.one_hidden.Backend`."""
        base = _base(net) if base is None else base
        total = torch.zeros_like(base)
        for group in _groups(net, base):
            total += _delta(net, group, gradient).sum(0)
        out = torch.empty_like(net.u)
        before = torch.zeros_like(base)
        left = F.pad(net.weight, (0, 0, 1, 0))  # W_{k-1}
        right = F.pad(net.weight, (0, 0, 0, 1))
        for group in _groups(net, base):
            delta = _delta(net, group, gradient)
            if net.strict:
                sums = torch.cat([before[None], delta])
                until, earlier = _running_sum(sums[1:], before), sums[:-1]
                value = torch.bmm(total - until, right[group.features][:, :, None])
                value += torch.bmm(earlier, left[group.features][:, :, None])
                before = until[-1]
            else:
                value = torch.bmm(total - delta, net.weight[group.features][:, :, None])
            out[:, group.features] = value[:, :, 0].T
        return out if onto is None else onto.add_(out)


@dataclass
class _Group:
    """Some neighbouring features and their pre-activations, shape (group, n, h), which the user may overwrite."""

    features: slice
    pre: Tensor


def _base(net: OneHidden) -> Tensor:
    """Return what the walk along the features starts from, shape (n, h)."""
    base = net.u[:, 1:] @ net.weight if net.strict else net.u @ net.weight
    if net.strict:
        base += net.offset
    return base if net.shared is None else base.add_(net.shared)


def _groups(net: OneHidden, base: Tensor) -> Iterator[_Group]:
    p = net.u.shape[1]
    length = min(p, max(1, GROUP_ELEMENTS // base.numel()))
    columns = net.u.T.contiguous()
    state = base
    right = F.pad(net.weight, (0, 0, 0, 1)) if net.strict else net.weight
    for start in range(0, p, length):
        features = slice(start, min(start + length, p))
        if net.strict:
            steps = columns[features] - _shifted(net.u, features).T
            weight = right[features]  # a row of zeros after the last: nothing moves on from the last feature
            states = base.new_empty(len(steps) + 1, *base.shape)
            states[0] = state
            torch.mul(steps[:, :, None], weight[:, None], out=states[1:])
            _running_sum(states[1:], state)
            pre, state = states[:-1], states[-1].clone()
        else:
            pre = base + net.offset[features][:, None]
            pre.addcmul_(columns[features][:, :, None], net.weight[features][:, None], value=-1)
        yield _Group(features, pre)


def _running_sum(parts: Tensor, start: Tensor) -> Tensor:
    """Return ``start`` plus the sum of ``parts`` up to each along the first dimension; overwrites ``parts``.

    PyTorch's own ``cumsum`` walks down one column after the other, against the order of memory: several times slower.
    """
    so_far = start
    for part in parts.unbind(0):
        so_far = part.add_(so_far)
    return parts


def _delta(net: OneHidden, group: _Group, gradient: Tensor) -> Tensor:
    """Return δ for the features of a group, shape (group, n, h)."""
    scaled = gradient[:, group.features].T[:, :, None] * net.readout
    delta: Tensor
    if net.activation == "gelu":
        delta = torch.ops.aten.gelu_backward(scaled, group.pre)
    else:
        delta = torch.ops.aten.threshold_backward(scaled, group.pre, 0)
    return delta


def _shifted(u: Tensor, features: slice) -> Tensor:
    """Return the column after each of ``features``, shape (n, group), with zeros after the last."""
    following = u[:, features.start + 1 : features.stop + 1]
    return F.pad(following, (0, features.stop - features.start - following.shape[1]))
