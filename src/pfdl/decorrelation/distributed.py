"""Sums over the processes of a data-parallel run, so that both steps see the union of all their batches.

The mean over the batch stands inside the square of L_decorr: the average of per-process losses is not the loss of the
whole batch. What is linear in the samples is summed over the processes before it is squared: p numbers, never the
features. Counts travel along, so that batches of different sizes are weighted as one batch would be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """The number of processes that train together; 1 outside ``torch.distributed``."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


class Batch:
    """The batch of one process as a part of the batch of all of them.

    Args:
        rows: Samples of this process.
        device: Where the features are.
        synchronize: Whether other processes take part. They must then make the same calls in the same order.

    Attributes:
        processes: How many take part.
        total: Samples of all of them; a tensor if they had to be counted, so that nobody waits for a GPU.
    """

    def __init__(self, rows: int, device: torch.device, synchronize: bool) -> None:
        self.processes = world_size() if synchronize else 1
        self.total: int | Tensor = rows
        if self.processes > 1:
            self.total = torch.tensor(float(rows), device=device)
            dist.all_reduce(self.total)

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all processes, with a gradient.

        The gradient of ``value`` is the sum of what the processes' losses have of it. Each of them returns the loss
        of the whole batch, so that this is ``processes`` times the gradient of that loss, and the average that
        ``DistributedDataParallel`` takes over the processes is the gradient itself.
        """
        if self.processes == 1:
            return value
        result: Tensor = _Sum.apply(value)
        return result

    def sum_all(self, values: Sequence[Tensor]) -> list[Tensor]:
        """The sums over all processes, without gradients, in a single exchange."""
        if self.processes == 1:
            return list(values)
        together = torch.cat([value.reshape(-1) for value in values])
        dist.all_reduce(together)
        parts = torch.split(together, [value.numel() for value in values])
        return [part.view(value.shape) for part, value in zip(parts, values, strict=True)]

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether it is so in any of the processes. Waits for the device."""
        if self.processes == 1:
            return flag
        anywhere = torch.tensor(float(flag), device=device)
        dist.all_reduce(anywhere, dist.ReduceOp.MAX)
        return bool(anywhere)


def share_from_first(tensors: Iterable[Tensor]) -> None:
    """Give every process the values of the first one."""
    with torch.no_grad():
        for tensor in tensors:
            dist.broadcast(tensor.data, 0)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        result: Tensor = _Sum.apply(gradient)
        return result
