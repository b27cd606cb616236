"""The processes that train together under ``torch.distributed``: what one of them says, and what
they agree on.

All of this passes through the memory of the hosts, never through a GPU, so no process waits for
one. Every process must call the same functions in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

Result = TypeVar("Result")
_PATIENCE = timedelta(days=1)
"""How long processes wait for the first, which may infer contexts or test a model; a dead one is
noticed sooner.
"""

_host_groups: dict[dist.ProcessGroup, dist.ProcessGroup] = {}


class OtherProcessError(RuntimeError):
    """The first process could not go on, and says why itself; this one stops with it."""


def world_size() -> int:
    """Return the number of processes that train together; 1 outside ``torch.distributed``."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return which of them this process is; 0 outside ``torch.distributed``."""
    return dist.get_rank() if world_size() > 1 else 0


def host_group() -> dist.ProcessGroup:
    """Return the group in which all processes exchange what lies in the memory of the hosts."""
    everyone = dist.group.WORLD
    assert everyone is not None  # world_size() > 1 says that there is one
    if everyone not in _host_groups:
        _host_groups.clear()  # of a group that was destroyed
        group = dist.new_group(backend="gloo", timeout=_PATIENCE)
        assert isinstance(group, dist.ProcessGroup)  # every process is part of it
        _host_groups[everyone] = group
    return _host_groups[everyone]


def gather_numbers(*numbers: int) -> list[list[int]]:
    """Return the numbers of every process, in the order of the processes."""
    mine = torch.tensor(numbers, dtype=torch.int64)
    if world_size() == 1:
        return [mine.tolist()]
    everyone = [torch.empty_like(mine) for _ in range(world_size())]
    dist.all_gather(everyone, mine, group=host_group())
    return [theirs.tolist() for theirs in everyone]


def gather_objects(value: Result) -> list[Result]:
    """Return what every process has, in the order of the processes; anything that pickle can
    hold.
    """
    if world_size() == 1:
        return [value]
    everyone: list[Any] = [None] * world_size()
    dist.all_gather_object(everyone, value, group=host_group())
    return everyone


def anybody(flag: bool) -> bool:
    """Return whether the flag is set in any process."""
    return flag if world_size() == 1 else any(theirs for (theirs,) in gather_numbers(int(flag)))


@contextmanager
def report_lost_process() -> Iterator[None]:
    """Raise OSError, with a sentence, where another process of a training is gone, or one that
    loads its images.

    PyTorch raises its own error wherever training happens to be, not only where a batch is read.
    """
    try:
        yield
    except RuntimeError as error:
        if re.search(r"DataLoader worker .*(exited unexpectedly|is killed by signal)", str(error)):
            raise ChildProcessError(
                "a process that loads images ended unexpectedly, perhaps for want of memory; the"
                " same command resumes the training. If that happens again, let fewer load (--set"
                " workers=0)."
            ) from error
        is_lost = isinstance(error, dist.DistError) or re.search(
            r"gloo|Connection closed|NCCL", str(error)
        )
        if world_size() == 1 or not is_lost or isinstance(error, OtherProcessError):
            raise
        raise ConnectionError(
            f"another process of this training ended, so that process {rank()} stops; the same"
            " command resumes it."
        ) from error


def run_on_first(work: Callable[[], Result]) -> Result:
    """Do some work in the first process alone and give its result to all.

    Args:
        work: What to do; its result must be something that pickle can hold.

    Raises:
        Exception: In the first process whatever ``work`` raises.
        OtherProcessError: In the others, if it raises there.
    """
    if world_size() == 1:
        return work()
    share: list[Any] = [None, None]
    problem: Exception | None = None
    if rank() == 0:
        try:
            share[0] = work()
        except Exception as error:
            problem = error
            share[1] = f"{error}"
    dist.broadcast_object_list(share, src=0, group=host_group())
    if problem is not None:
        raise problem
    if share[1] is not None:
        raise OtherProcessError(f"the first process stopped: {share[1]}")
    result: Result = share[0]
    return result
