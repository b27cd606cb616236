"""Sums over the processes of a data-parallel run, so that both steps see the union of all their batches.

The mean over the batch stands inside the square of L_decorr: the average of per-process losses is not the loss of the
whole batch. What is linear in the samples is summed over the processes before it is squared: p numbers, never the
features. Counts travel along, so that batches of different sizes are weighted as one batch would be.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from pfdl._internal.processes import gather_numbers, gather_objects


class Batch:
    """The batch of one process as a part of the batch of all of them.

    Args:
        total: Samples of all processes.
        processes: How many take part.
    """

    def __init__(self, total: int, processes: int = 1) -> None:
        self.total = total
        self.processes = processes

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


class Meeting(NamedTuple):
    """What the processes told each other: how many samples each of them has, and for each further number all of it."""

    rows: list[int]
    numbers: list[list[int]]

    def batch(self, least: int = 1) -> Batch:
        """Return the union of their batches; raise ValueError if it has fewer samples than ``least``."""
        if sum(self.rows) < least:
            raise ValueError(f"all processes together have a batch of {sum(self.rows)}; give at least {least} samples.")
        return Batch(sum(self.rows), len(self.rows))


class Announcement(NamedTuple):
    """What a process has to tell the others before a step; see :func:`meet`."""

    rows: int
    problem: Exception | None
    signature: str
    flag: bool = False

    def meet(self) -> Meeting:
        """Tell it to the others; the flags of all are the first of the numbers."""
        return meet(self.rows, self.problem, self.signature, self.flag)


def meet(rows: int, problem: Exception | None, signature: str, *numbers: int) -> Meeting:
    """Let all processes go on, or stop, together; nobody waits for a GPU.

    A process that raised alone would leave the others waiting for it.

    Args:
        rows: Samples of this process.
        problem: Why this process cannot use its batch; None if it can.
        signature: What must be the same in all processes.
        *numbers: What all are told.

    Raises:
        Exception: ``problem``, if there is one.
        ValueError: If another process has a problem, or another signature.
    """
    everyone = gather_numbers(rows, problem is not None, zlib.crc32(signature.encode()), *numbers)
    counts, problems, signatures, *told = (list(column) for column in zip(*everyone, strict=True))
    if any(problems):
        reasons = gather_objects(None if problem is None else str(problem))
        if problem is not None:
            raise problem
        which = problems.index(1)
        raise ValueError(
            f"process {which} cannot use its batch, and no other goes on without it: {reasons[which]} "
            "Nothing was updated."
        )
    if len(set(signatures)) > 1:
        texts = gather_objects(signature)
        other = next(index for index, text in enumerate(texts) if text != texts[0])
        raise ValueError(
            f"the processes do not train alike: process 0 has {texts[0]}; process {other} has {texts[other]}. Build "
            "all of them alike. Nothing was updated."
        )
    return Meeting(counts, told)


def share_from_first(tensors: Iterable[Tensor]) -> None:
    """Give every process the values of the first one."""
    with torch.no_grad():
        for tensor in tensors:
            dist.broadcast(tensor.data, 0)


def gather_rows(values: Tensor, rows: Sequence[int], rank: int) -> Tensor:
    """Return the rows of all processes in their order, with a gradient that follows :meth:`Batch.sum`.

    Args:
        values: The rows of this process; all processes have them in one dtype and width.
        rows: How many each process has.
        rank: Which process this is.
    """
    result: Tensor = _Rows.apply(values, rows, rank)
    return result


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


class _Rows(torch.autograd.Function):
    """The rows of all processes, of which each may have another number."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, rows: Sequence[int], rank: int) -> Tensor:
        ctx.rows, ctx.rank = rows, rank
        padded = values.new_zeros(max(rows), *values.shape[1:])  # an exchange takes tensors of one size
        padded[: len(values)] = values
        everyone = [torch.empty_like(padded) for _ in rows]
        dist.all_gather(everyone, padded)
        return torch.cat([theirs[:count] for theirs, count in zip(everyone, rows, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        # All processes compute the same loss of the same rows: the sum of their gradients is a multiple of this one.
        return len(ctx.rows) * torch.split(gradient, ctx.rows)[ctx.rank], None, None
