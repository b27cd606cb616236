"""Sums over the processes of a data-parallel run, so that both steps see the union of all their
batches.

The mean over the batch stands inside the square of L_decorr: the average of per-process losses is
not the loss of the whole batch. What is linear in the samples is summed over the processes before
it is squared: p numbers, never the features. Counts travel along, so that batches of different
sizes are weighted as one batch would be.

All processes must be built alike and make the same calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pfdl._internal.processes import gather_numbers, rank, world_size


@dataclass(frozen=True)
class Batch:
    """The batch of one process as a part of the batch of all of them.

    Attributes:
        total: Samples of all processes.
        processes: How many take part.
    """

    total: int
    processes: int = 1

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over the samples of all processes, with a gradient; samples are the first
        dimension.

        The gradient of ``values`` is the sum of what the processes' losses have of it. Each of them
        returns the loss of the whole batch, so that this is ``processes`` times the gradient of
        that loss, and the average that ``DistributedDataParallel`` takes over the processes is the
        gradient itself.
        """
        total = values.sum(0)
        if self.processes > 1:
            total = _Sum.apply(total)
        return total / self.total

    def average(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the averages over the processes, without gradients, in a single exchange."""
        if self.processes == 1:
            return tensors
        together = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(together)
        sizes = [tensor.numel() for tensor in tensors]
        averages = torch.split(together / self.processes, sizes)
        return [mean.view(tensor.shape) for mean, tensor in zip(averages, tensors, strict=True)]


def join_batches(rows: int, problem: Exception | None = None, least: int = 2) -> Batch:
    """Return the union of the batches of all processes, which go on or stop together, without
    waiting for a GPU.

    Args:
        rows: Samples of this process.
        problem: Why this process cannot use its batch; None if it can.
        least: How many samples there must be in all; one has no correlation.

    Raises:
        Exception: ``problem``, if there is one.
        ValueError: If another process has a problem, or there are too few samples.
    """
    everyone = gather_numbers(rows, problem is not None)
    if problem is not None:
        raise problem
    for number, (_, is_broken) in enumerate(everyone):
        if is_broken:
            raise ValueError(
                f"process {number} cannot use its batch and says why; nothing was updated in this"
                " one."
            )
    total = sum(theirs for theirs, _ in everyone)
    if total < least:
        raise ValueError(
            f"all processes together have a batch of {total}; give at least {least} samples."
        )
    return Batch(total, len(everyone))


def gather_rows(values: Tensor, rows: Sequence[int]) -> Tensor:
    """Return the rows of all processes in their order, with a gradient that follows
    :meth:`Batch.mean`.

    Args:
        values: The rows of this process; all processes have them in one dtype and width.
        rows: How many each process has.
    """
    result: Tensor = _Rows.apply(values, rows)
    return result


class _Sum(torch.autograd.Function):
    """The sum over all processes; torch.distributed.nn.functional.all_reduce is the same, but
    deprecated.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        result: Tensor = _Sum.apply(gradient)
        return result


class _Rows(torch.autograd.Function):
    """The rows of all processes, of which each may have another number."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, rows: Sequence[int]) -> Tensor:
        ctx.rows = rows
        # An exchange takes tensors of one size
        padded = values.new_zeros(max(rows), *values.shape[1:])
        padded[: len(values)] = values
        everyone = [torch.empty_like(padded) for _ in range(world_size())]
        dist.all_gather(everyone, padded)
        return torch.cat([theirs[:count] for theirs, count in zip(everyone, rows, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        own = torch.split(gradient, ctx.rows)[rank()]
        # All processes compute the same loss of the same rows: the sum of their gradients is a
        # multiple of this one.
        return len(ctx.rows) * own, None
