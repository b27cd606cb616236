"""Sums over the processes of a data-parallel run, so that both steps see the union of all their batches.

The mean over the batch stands inside the square of L_decorr: the average of per-process losses is not the loss of the
whole batch. What is linear in the samples is summed over the processes before it is squared: p numbers, never the
features. Counts travel along, so that batches of different sizes are weighted as one batch would be.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """Return the number of processes that train together; 1 outside ``torch.distributed``."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


class Batch:
    """The batch of one process as a part of the batch of all of them.

    Args:
        total: Samples of all processes; a tensor where counting them must not wait for a GPU.
        processes: How many take part.
    """

    def __init__(self, total: int | Tensor, processes: int = 1) -> None:
        self.total = total
        self.processes = processes

    @classmethod
    def of_all(cls, rows: int, device: torch.device) -> Batch:
        """Count the samples of all processes without waiting for the device."""
        total = torch.tensor(float(rows), device=device)
        dist.all_reduce(total)
        return cls(total, world_size())

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum over all processes, with a gradient.

        The gradient of ``value`` is the sum of what the processes' losses have of it. Each of them returns the loss
        of the whole batch, so that this is ``processes`` times the gradient of that loss, and the average that
        ``DistributedDataParallel`` takes over the processes is the gradient itself.
        """
        if self.processes == 1:
            return value
        result: Tensor = _Sum.apply(value)
        return result

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over the samples of all processes, with a gradient; samples are the first dimension."""
        return self.sum(values.sum(0)) / self.total

    def sum_all(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Return the sums over all processes, without gradients, in a single exchange."""
        if self.processes == 1:
            return list(values)
        together = torch.cat([value.reshape(-1) for value in values])
        dist.all_reduce(together)
        parts = torch.split(together, [value.numel() for value in values])
        return [part.view(value.shape) for part, value in zip(parts, values, strict=True)]

    def variance(self, values: Tensor) -> Tensor:
        """Return the variance over the samples of all processes, without a gradient."""
        if self.processes == 1:
            return values.var(0, correction=0)
        (total,) = self.sum_all([values.sum(0)])
        (squares,) = self.sum_all([(values - total / self.total).square().sum(0)])
        return squares / self.total


def meet(rows: int, device: torch.device, problem: Exception | None, signature: str, ready: bool) -> tuple[int, bool]:
    """Let all processes go on, or stop, together. Waits for the device.

    A process that raised alone would leave the others waiting for it.

    Args:
        rows: Samples of this process.
        device: Where the processes exchange numbers.
        problem: Why this process cannot use its batch; None if it can.
        signature: What must be the same in all processes.
        ready: Whether this process has nothing to be given by the first.

    Returns:
        The samples of all processes, and whether all of them are ready.

    Raises:
        Exception: ``problem``, if there is one.
        ValueError: If another process has a problem, or another signature.
    """
    mine = torch.tensor([rows, problem is not None, zlib.crc32(signature.encode()), ready], device=device)
    everyone = [torch.empty_like(mine) for _ in range(world_size())]
    dist.all_gather(everyone, mine)
    counts, problems, signatures, readies = torch.stack(everyone).T.tolist()
    if problem is not None:
        raise problem
    if any(problems):
        raise ValueError(
            f"process {problems.index(1)} cannot use its features and says why; another process cannot go on without "
            "it. Nothing was updated."
        )
    if len(set(signatures)) > 1:
        raise ValueError(
            f"the processes have built their penalties differently: this one has {signature}; build all of them alike. "
            "Nothing was updated."
        )
    return sum(counts), all(readies)


def share_from_first(tensors: Iterable[Tensor]) -> None:
    """Give every process the values of the first one."""
    with torch.no_grad():
        for tensor in tensors:
            dist.broadcast(tensor.data, 0)


def union_of(rows: int, device: torch.device, problem: Exception | None, signature: str) -> Batch:
    """Join the batches of all processes; on a GPU without waiting for it, so that a problem stops this process only.

    Args:
        rows: Samples of this process.
        device: Where they are.
        problem: Why this process cannot use its batch; None if it can.
        signature: What must be the same in all processes.
    """
    if device.type != "cuda":
        return Batch(meet(rows, device, problem, signature, True)[0], world_size())
    if problem is not None:
        raise problem
    return Batch.of_all(rows, device)


class _Sum(torch.autograd.Function):
    """The sum over all processes; torch.distributed.nn.functional.all_reduce is the same, but deprecated."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        result: Tensor = _Sum.apply(gradient)
        return result
