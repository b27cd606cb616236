"""The closed form of a strict g in plain PyTorch: a walk along the features, many steps of it at once.

Every feature's state follows from that of the feature before it, and to walk feature by feature would be thousands of
operations on a few numbers each. So the features are divided into lanes of neighbours, which are walked side by side:
one operation takes the i-th feature of every lane. The states in which the lanes start are products of matrices.
L, the sum of δ along the features, is kept for each lane alone; what the lanes before it add is another product of
matrices, or known from an earlier pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl.decorrelation.kernels.one_hidden import OneHidden
from pfdl.decorrelation.kernels.torch_units import delta_of, dot, hidden_layer


class Lanes:
    """The features of a strict g, divided into lanes.

    Arrays over features have the shape (length, lanes, …): first by the place in a lane. Where the last lane is not
    full they have zeros.

    Args:
        net: The network.
        base: The state of the first feature, shape (n, h).
        at_most: The largest number of lanes.
    """

    def __init__(self, net: OneHidden, base: Tensor, at_most: int) -> None:
        n, self.features = net.u.shape
        # A walk has one small operation for each lane and a few larger ones for each place: none should be the most.
        wanted = min(at_most, math.isqrt(8 * self.features))
        self.length = -(-self.features // wanted)
        self.number = -(-self.features // self.length)
        self.net, self.base = net, base
        columns = net.u.new_zeros(self.number * self.length + 1, n)
        columns[: self.features] = net.u.T
        steps = columns[:-1] - columns[1:]
        weight = F.pad(net.weight, (0, 0, 0, len(steps) - len(net.weight)))
        self._steps_by_lane = steps.view(self.number, self.length, n)  # d_k
        self._weight_by_lane = weight.view(self.number, self.length, -1)  # W_k, zeros for the last feature
        self._steps = self._steps_by_lane.transpose(0, 1).contiguous()
        self._weight = self._weight_by_lane.transpose(0, 1).contiguous()[:, :, None]

    def predict(self) -> Tensor:
        """Return Ũ without its constant, shape (n, p)."""
        spare, out = self._buffer(), self._steps.new_empty(self._steps.shape)
        for pre, here in zip(self._states(), out, strict=True):
            here.copy_(hidden_layer(self.net, pre, spare) @ self.net.readout)
        return self._joined(out).T

    def weight_gradients(self, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return Δ, shape (n, h), what ∂W lacks from Σ_i u_k Δ, shape (p − 1, h), and ∂v, shape (h,), from G."""
        delta, spare, until = self._buffer(), self._buffer(), self._buffer().zero_()
        correction = self._weight.new_empty(self._weight.shape)
        readout = torch.zeros_like(self.net.readout)
        divided = self._divided(gradient)
        for pre, rows, steps, here in zip(self._states(), divided, self._steps, correction, strict=True):
            readout += rows.view(-1) @ hidden_layer(self.net, pre, spare).flatten(0, 1)
            until += delta_of(self.net, pre, rows, delta)
            torch.bmm(steps[:, None], until, out=here)
        before = _running_sum(until)
        by_lane = correction.squeeze(2).transpose(0, 1).contiguous()
        by_lane[1:].baddbmm_(self._steps_by_lane[1:], before[:-1])
        return before[-1], by_lane.flatten(0, 1)[: len(self.net.weight)], readout

    def feature_gradient(self, gradient: Tensor) -> Tensor:
        """Return ∂u, shape (n, p), from G."""
        delta, spare, rest = self._buffer(), self._buffer(), self._buffer().zero_()
        divided = self._divided(gradient)
        for pre, rows in zip(self._states(), divided, strict=True):
            rest += delta_of(self.net, pre, rows, delta)
        rest = _running_sum(rest.flip(0)).flip(0)  # Δ − L at the start of each lane
        total = rest[0].clone()  # Δ
        own, passed_on = torch.empty_like(divided), torch.empty_like(divided)
        for place, (pre, rows, weight) in enumerate(zip(self._states(), divided, self._weight, strict=True)):
            rest -= delta_of(self.net, pre, rows, delta)  # Δ − L_{k+1}
            own[place] = dot(rest, weight, spare)
            # W_k·L_{k+1} is for the next feature. Both sums are taken alike, so that they cancel where L is zero.
            torch.sub(dot(total, weight, spare), own[place], out=passed_on[place])
        out = self._joined(own)
        out[1:] += self._joined(passed_on)[:-1]
        return out.T

    def _buffer(self) -> Tensor:
        return self.base.new_empty(self.number, *self.base.shape)

    def _states(self) -> Iterator[Tensor]:
        """Yield the pre-activations at each place of the lanes, shape (lanes, n, h), always in the same memory."""
        state = self._buffer()
        state[0] = self.base
        torch.bmm(self._steps_by_lane[:-1].mT, self._weight_by_lane[:-1], out=state[1:])
        yield _running_sum(state)
        for steps, weight in zip(self._steps[:-1, :, :, None], self._weight[:-1], strict=True):
            yield state.addcmul_(steps, weight)

    def _divided(self, values: Tensor) -> Tensor:
        """Return values of shape (n, p) as (length, lanes, n)."""
        columns = F.pad(values.T, (0, 0, 0, self.number * self.length - self.features))
        return columns.view(self.number, self.length, -1).transpose(0, 1).contiguous()

    def _joined(self, values: Tensor) -> Tensor:
        """Return values of shape (length, lanes, n) as (p, n)."""
        return values.transpose(0, 1).flatten(0, 1)[: self.features]


def _running_sum(parts: Tensor) -> Tensor:
    """Return the sum of ``parts`` up to each along the first dimension; overwrites them.

    PyTorch's own ``cumsum`` walks down one column after the other, against the order of memory: several times slower.
    """
    for before, part in pairwise(parts.unbind(0)):
        part.add_(before)
    return parts
