"""Run independent tasks side by side: in processes of this machine or, on a GPU, in turns."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import joblib

from pfdl._internal.interleaving import run_interleaved

Task = Mapping[str, Any]
Function = Callable[..., Any]
WATCH = "pfdl-end-with-parent"
"""The thread of a worker that ends it with its parent."""


ON_A_GPU = 4
"""Tasks at a time on a GPU."""


class WorkerLostError(OSError):
    """A worker process was killed before its task was done."""


def run_tasks(
    function: Function,
    tasks: Sequence[Task],
    jobs: int = 1,
    threads: int = 1,
    device: str = "cpu",
) -> Iterator[tuple[Task, Any]]:
    """Call ``function(**task)`` for every task.

    On a GPU, with one job, four are at work at a time, so that it has work while one of them waits:
    in processes where NVIDIA's MPS runs already, else in turns in this process, each on a stream of
    its own.

    Args:
        function: A function at the top level of a module, or a ``functools.partial`` of one.
        tasks: Keyword arguments of each call.
        jobs: Tasks at a time (joblib's counting: −1 is one for each core).
        threads: Threads of each task. Tasks that run side by side would fight for cores, and the
            number of threads can change the last digits of a result.
        device: Where the tasks compute.

    Yields:
        Each task with what the function returned, in the order in which they finish.

    Raises:
        WorkerLostError: If a worker was killed.
    """
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    if device.startswith("cuda") and jobs == 1 and shares_gpus():
        jobs = min(ON_A_GPU, len(tasks))
    elif device.startswith("cuda") and jobs == 1:
        with _limited_threads(threads):
            work = [(task, partial(function, **task)) for task in tasks]
            yield from run_interleaved(work, ON_A_GPU, device)
        return
    # Joblib's, after Ctrl-C
    warnings.filterwarnings("ignore", r"\d+ tasks which were still being processed")
    parallel = joblib.Parallel(
        n_jobs=jobs,
        return_as="generator_unordered",
        initializer=_end_with_parent,
        initargs=(os.getpid(),),
    )
    calls = (joblib.delayed(call_on_threads)(function, task, threads) for task in tasks)
    try:
        with _interrupts_for_this_process_alone():
            results = parallel(calls)  # starts the workers
        yield from results
    except TerminatedWorkerError as error:
        raise WorkerLostError(
            "a worker process was killed, often because the memory did not suffice; what was"
            " finished is kept. Start the command again with more memory, or with fewer --jobs if"
            " it has that option."
        ) from error


def shares_gpus() -> bool:
    """Return whether NVIDIA's Multi-Process Service runs, which lets processes compute at the same
    time.
    """
    pipes = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    return (Path(pipes) / "control").exists()


def call_on_threads(function: Function, task: Task, threads: int) -> tuple[Task, Any]:
    """Run one task on so many threads, and return it with its result."""
    with _limited_threads(threads):
        return task, function(**task)


@contextmanager
def _limited_threads(threads: int) -> Iterator[None]:
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(limits=threads):
            yield
    finally:
        torch.set_num_threads(before)


def share_of_threads(at_once: int) -> int:
    """Return how many threads each of so many tasks at a time has: no more than OMP_NUM_THREADS."""
    import torch

    share: int = max(1, joblib.cpu_count() // at_once)
    return min(torch.get_num_threads(), share)


@contextmanager
def _interrupts_for_this_process_alone() -> Iterator[None]:
    """Let processes that are started in the block never see Ctrl-C, whatever they are importing.

    It goes to all processes of a terminal; this one answers, and ends its workers.
    """
    import multiprocessing.resource_tracker

    from joblib.externals.loky.backend import resource_tracker as loky_resource_tracker

    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    # Both would take the block away when they start
    for tracker in (multiprocessing.resource_tracker, loky_resource_tracker):
        tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent(parent: int) -> None:
    """End this worker process when its parent ends; joblib's own would first finish a training of
    hours.

    It is called before the first task is read, which imports PyTorch and takes seconds.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, name=WATCH, daemon=True).start()
