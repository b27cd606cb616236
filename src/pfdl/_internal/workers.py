"""Run independent tasks side by side, in processes of this machine."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import joblib

Task = Mapping[str, Any]
Function = Callable[..., Any]


class WorkerLostError(OSError):
    """A worker process was killed before its task was done."""


def run_tasks(
    function: Function, tasks: Sequence[Task], jobs: int = 1, threads: int = 1
) -> Iterator[tuple[Task, Any]]:
    """Call ``function(**task)`` for every task.

    Args:
        function: A function at the top level of a module, or a ``functools.partial`` of one.
        tasks: Keyword arguments of each call.
        jobs: Tasks at a time (joblib's counting: −1 is one for each core).
        threads: Threads of each task. Tasks that run side by side would fight for cores, and the
            number of threads can change the last digits of a result.

    Yields:
        Each task with what the function returned, in the order in which they finish.

    Raises:
        WorkerLostError: If a worker was killed.
    """
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    # Joblib's, after Ctrl-C
    warnings.filterwarnings("ignore", r"\d+ tasks which were still being processed")
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    try:
        yield from parallel(
            joblib.delayed(_call_for)(os.getpid(), function, task, threads) for task in tasks
        )
    except TerminatedWorkerError as error:
        raise WorkerLostError(
            "a worker process was killed, often because the memory did not suffice; what was"
            " finished is kept. Start the command again with more memory, or with fewer --jobs if"
            " it has that option."
        ) from error


def call_on_threads(function: Function, task: Task, threads: int) -> tuple[Task, Any]:
    """Run one task on so many threads, and return it with its result."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(limits=threads):
            return task, function(**task)
    finally:
        torch.set_num_threads(before)


def _call_for(parent: int, function: Function, task: Task, threads: int) -> tuple[Task, Any]:
    """Run one task, and give it up as soon as the process that asked for it is gone."""
    if os.getpid() != parent:  # else there is one job only, and no worker
        _end_with_parent(parent)
    return call_on_threads(function, task, threads)


@cache
def _end_with_parent(parent: int) -> None:
    """End this worker process when its parent ends; joblib's own would first finish a training of
    hours.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
