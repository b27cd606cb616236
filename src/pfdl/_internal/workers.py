"""Run independent tasks side by side: in processes of this machine (joblib), or on a Ray cluster."""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib

from pfdl._internal.validation import check_choice

if TYPE_CHECKING:
    from rich.console import Console

Task = Mapping[str, Any]
Function = Callable[..., Any]
BACKENDS = ("joblib", "ray")
RETRIES = 3
"""So often Ray runs a task again whose worker or machine was lost."""


class WorkerLostError(OSError):
    """A worker process was killed before its task was done."""


@dataclass(frozen=True)
class Workers:
    """Where tasks run, and how many at a time.

    Args:
        n_jobs: Tasks at a time (joblib's counting: −1 is one for each core). A Ray cluster decides that itself.
        backend: ``"joblib"``, processes of this machine; or ``"ray"``, the cluster that the environment variable
            ``RAY_ADDRESS`` names, else a local Ray for ``n_jobs`` tasks.
        gpus_per_task: On Ray, how much of a GPU each task asks for: 0.1 puts ten tasks on one GPU.
        threads: Threads of each task, and on Ray the processors that it asks for. Tasks that run side by side would
            fight for cores, and the number of threads can change the last digits of a result.

    Raises:
        ValueError: If a value cannot be used.
    """

    n_jobs: int = 1
    backend: str = "joblib"
    gpus_per_task: float = 0.0
    threads: int = 1

    def __post_init__(self) -> None:
        check_choice("backend", self.backend, BACKENDS)
        if self.n_jobs == 0:
            raise ValueError("n_jobs is 0; give the number of tasks at a time, or -1 for all cores.")
        if self.gpus_per_task < 0 or (self.gpus_per_task > 1 and self.gpus_per_task % 1):
            raise ValueError(
                f"gpus_per_task is {self.gpus_per_task}; give a part of one GPU, such as 0.1, or a whole number."
            )

    def at_once(self, tasks: int) -> int:
        """Return how many of so many tasks run at a time; a Ray cluster takes all of them."""
        return tasks if self.backend == "ray" else min(tasks, joblib.effective_n_jobs(self.n_jobs))

    def run(self, function: Function, tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
        """Call ``function(**task)`` for every task.

        Args:
            function: A function at the top level of a module, or a ``functools.partial`` of one.
            tasks: Keyword arguments of each call.

        Yields:
            Each task with what the function returned, in the order in which they finish.

        Raises:
            WorkerLostError: If a worker was killed; on Ray, if that happened again and again.
            ModuleNotFoundError: If Ray is asked for and not installed.
        """
        execute = self._on_ray if self.backend == "ray" else self._here
        yield from execute(function, tasks)

    def _here(self, function: Function, tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        parallel = joblib.Parallel(n_jobs=self.n_jobs, return_as="generator_unordered")
        try:
            yield from parallel(joblib.delayed(_call_for)(os.getpid(), function, task, self.threads) for task in tasks)
        except TerminatedWorkerError as error:
            raise WorkerLostError(
                "a worker process was killed, often because the memory did not suffice; what was finished is kept. "
                "Start the command again, with fewer --jobs."
            ) from error

    def _on_ray(self, function: Function, tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
        try:
            import ray
        except ImportError:
            raise ModuleNotFoundError(
                "The ray backend needs Ray: install pfdl[cluster], or use the joblib backend."
            ) from None
        started_here = not ray.is_initialized()
        if started_here:
            has_cluster = bool(os.environ.get("RAY_ADDRESS"))
            cores = joblib.effective_n_jobs(self.n_jobs) * self.threads
            local = {} if has_cluster else {"address": "local", "num_cpus": cores, "include_dashboard": False}
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **local)
        running: list[Any] = []
        try:
            remote = ray.remote(num_cpus=self.threads, num_gpus=self.gpus_per_task, max_retries=RETRIES)(_call_in)
            running += [remote.remote(str(Path.cwd()), function, task, self.threads) for task in tasks]
            while running:
                (done,), running[:] = ray.wait(running, num_returns=1)
                yield ray.get(done)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None  # as if it had been raised here
        except ray.exceptions.RayError as error:
            raise WorkerLostError(
                f"a task was lost on the cluster {RETRIES + 1} times ({str(error).partition(chr(10))[0]}); what was "
                "finished is kept. Start the command again."
            ) from error
        finally:
            for task in running:
                ray.cancel(task, force=True)
            if started_here:
                ray.shutdown()


@dataclass(frozen=True)
class Execution:
    """Where an experiment runs and what is seen of it; its results do not depend on this.

    Args:
        device: Where to compute.
        workers: Where the tasks run, and how many at a time; by default one after the other.
        console: Where to show progress; None for nowhere.
        command: What a user typed to start this, for the record.
    """

    device: str = "cpu"
    workers: Workers = Workers()
    console: Console | None = None
    command: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What a run folder keeps of it; the names of these settings may differ when a run is resumed."""
        return {"device": self.device, "command": self.command}


IN_SEQUENCE = Execution()
"""In this process, one task after the other, in silence."""


def _call(function: Function, task: Task, threads: int) -> tuple[Task, Any]:
    """Run one task on so many threads."""
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(limits=threads):
            return task, function(**task)
    finally:
        torch.set_num_threads(before)


def _call_in(folder: str, function: Function, task: Task, threads: int) -> tuple[Task, Any]:
    """Run one task in a folder of the file system that all machines share, so that relative paths hold.

    Where srun started Ray, its variables say that there are many tasks; a trainer would wait for the others.
    """
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        del os.environ[name]
    try:
        os.chdir(folder)
    except OSError as error:
        raise FileNotFoundError(
            f"the machine {platform.node()} of the cluster has no folder {folder} ({error.strerror}); start the "
            "command in a folder that all machines of the cluster share."
        ) from error
    return _call(function, task, threads)


def _call_for(parent: int, function: Function, task: Task, threads: int) -> tuple[Task, Any]:
    """Run one task, and give it up as soon as the process that asked for it is gone."""
    if os.getppid() == parent:
        _end_with_parent(parent)
    return _call(function, task, threads)


@cache
def _end_with_parent(parent: int) -> None:
    """End this worker process when its parent ends; joblib's own would first finish a training of hours."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
