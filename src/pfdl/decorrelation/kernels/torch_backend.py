"""The closed form of :mod:`pfdl.decorrelation.kernels.one_hidden` in plain PyTorch, a few features at a time.

The features are taken in groups so small that their pre-activations stay in the cache of a processor core. There is
no autograd inside: a pass reads and writes those pre-activations a handful of times and keeps none of them. All groups
of a pass work in the same three buffers, which stay in the cache, too.
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
            out[:, group.features] = (_hidden(net, group) @ net.readout).T
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
            readout += rows.reshape(-1) @ _hidden(net, group).flatten(0, 1)
            delta = _delta(net, group, gradient)
            if net.strict:
                until = _running_sum(delta, total)
                steps = u[:, group.features] - _shifted(u, group.features)
                kept = min(group.features.stop, p - 1) - group.features.start
                correction[group.features] = torch.bmm(steps.T[:kept, None], until[:kept])[:, 0]
                total = until[-1].clone()  # the buffer of until is used again
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
        before, passed_on = torch.zeros_like(base), net.u.new_zeros(len(net.u))  # L_k and W_{k-1}·L_k
        weight = _row_for_each(net)
        for group in _groups(net, base):
            delta = _delta(net, group, gradient)
            if net.strict:
                until = _running_sum(delta, before)
                following = _dot(until, weight[group.features], group.pre)
                value = _dot(torch.sub(total, until, out=group.spare), weight[group.features], group.spare)
                value[0] += passed_on
                value[1:] += following[:-1]
                before, passed_on = until[-1].clone(), following[-1]
            else:
                value = _dot(torch.sub(total, delta, out=group.spare), weight[group.features], group.spare)
            out[:, group.features] = value.T
        return out if onto is None else onto.add_(out)


@dataclass
class _Group:
    """Some neighbouring features and buffers of shape (group, n, h) for them, which the user may overwrite.

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


def _base(net: OneHidden) -> Tensor:
    """Return what the walk along the features starts from, shape (n, h)."""
    base = net.u[:, 1:] @ net.weight if net.strict else net.u @ net.weight
    if net.strict:
        base += net.offset
    return base if net.shared is None else base.add_(net.shared)


def _groups(net: OneHidden, base: Tensor) -> Iterator[_Group]:
    columns = net.u.T.contiguous()
    p = len(columns)
    length = min(p, max(1, GROUP_ELEMENTS // base.numel()))
    states, deltas, spares = base.new_empty(3, length + 1, *base.shape)
    weight, state = _row_for_each(net), base
    for start in range(0, p, length):
        features = slice(start, min(start + length, p))
        size = features.stop - start
        if net.strict:
            steps = columns[features] - _shifted(net.u, features).T
            states[0] = state
            torch.mul(steps[:, :, None], weight[features][:, None], out=states[1 : size + 1])
            state = _running_sum(states[1 : size + 1], state)[-1].clone()
        else:
            torch.add(base, net.offset[features][:, None], out=states[:size])
            states[:size].addcmul_(columns[features][:, :, None], weight[features][:, None], value=-1)
        yield _Group(features, states[:size], deltas[:size], spares[:size])


def _row_for_each(net: OneHidden) -> Tensor:
    """Return a row of weights for each feature, shape (p, h): zeros for the last of a strict g."""
    return F.pad(net.weight, (0, 0, 0, 1)) if net.strict else net.weight


def _dot(values: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """Return the sum over hidden units of values (group, n, h) times weight (group, h); ``out`` is overwritten.

    A batched product of matrices and vectors would be the same, and on a CPU several times slower.
    """
    return torch.mul(values, weight[:, None], out=out).sum(2)


def _running_sum(parts: Tensor, start: Tensor) -> Tensor:
    """Return ``start`` plus the sum of ``parts`` up to each along the first dimension; overwrites ``parts``.

    PyTorch's own ``cumsum`` walks down one column after the other, against the order of memory: several times slower.
    """
    so_far = start
    for part in parts.unbind(0):
        so_far = part.add_(so_far)
    return parts


def _hidden(net: OneHidden, group: _Group) -> Tensor:
    """Return the hidden layer for the features of a group, shape (group, n, h), in the spare buffer."""
    if net.activation == "gelu":
        hidden: Tensor = torch.ops.aten.gelu.out(group.pre, out=group.spare)
        return hidden
    return torch.clamp_min(group.pre, 0, out=group.spare)


def _delta(net: OneHidden, group: _Group, gradient: Tensor) -> Tensor:
    """Return δ for the features of a group, shape (group, n, h), in its buffer."""
    delta = torch.mul(gradient[:, group.features].T[:, :, None], net.readout, out=group.delta)
    if net.activation == "gelu":
        torch.ops.aten.gelu_backward.grad_input(delta, group.pre, grad_input=delta)
    else:
        torch.ops.aten.threshold_backward.grad_input(delta, group.pre, 0, grad_input=delta)
    return delta


def _shifted(u: Tensor, features: slice) -> Tensor:
    """Return the column after each of ``features``, shape (n, group), with zeros after the last."""
    following = u[:, features.start + 1 : features.stop + 1]
    return F.pad(following, (0, features.stop - features.start - following.shape[1]))
