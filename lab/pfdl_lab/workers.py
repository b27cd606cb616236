"""Where the tasks of an experiment run: in processes of this machine (joblib), or on a Ray
cluster.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import joblib
from rich.console import Console

from pfdl._internal.settings import check_settings, setting
from pfdl._internal.workers import Function, Task, WorkerLostError, call_on_threads, run_tasks

RETRIES = 3
"""So often Ray runs a task again whose worker or machine was lost."""


@dataclass(frozen=True)
class Execution:
    """Where an experiment runs and what is seen of it; its results do not depend on this. Each task
    has one thread.

    Args:
        jobs: How many at a time on this machine, in processes; -1 for all cores. With 1 four share
            a GPU: in turns in one process, or in processes where NVIDIA's MPS runs. A Ray cluster
            decides that itself.
        backend: joblib: processes of this machine; ray: the Ray cluster that RAY_ADDRESS names,
            else a local one.
        gpus_per_task: With ray, the part of a GPU that each asks for: 0.1 puts ten on one GPU.
        device: cpu or cuda; auto takes a GPU where there is one.
        console: Where to show progress; None for nowhere.
        command: What a user typed to start this, for the record.

    Raises:
        ValueError: If a value cannot be used.
    """

    jobs: int = setting(1, short="-j")
    backend: Literal["joblib", "ray"] = setting("joblib")
    gpus_per_task: float | None = setting(None)
    device: str = setting("cpu")
    console: Console | None = None
    command: str | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        gpus = self.gpus_per_task
        if self.jobs == 0:
            raise ValueError("jobs is 0; give the number of tasks at a time, or -1 for all cores.")
        if gpus is not None and self.backend != "ray":
            raise ValueError(
                "gpus_per_task is for the backend ray; on this machine alone jobs says how many"
                " share the GPU."
            )
        if gpus is not None and (gpus < 0 or (gpus > 1 and gpus % 1)):
            raise ValueError(
                f"gpus_per_task is {gpus}; give a part of one GPU, such as 0.1, or a whole number."
            )
        if gpus == 0 and self.device.startswith("cuda"):
            raise ValueError(
                "gpus_per_task is 0, but tasks compute on a GPU; give a part of one, or the device"
                " cpu."
            )

    @property
    def settings(self) -> dict[str, Any]:
        """What a run folder keeps of it; the names of these settings may differ when a run is
        resumed.
        """
        return {"device": self.device, "command": self.command}

    def resolved(self) -> Execution:
        """Return the same with the device that auto stands for; on a cluster this machine need not
        have a GPU.
        """
        from pfdl._internal.validation import resolve_device

        if self.backend == "ray" and (
            self.device == "cuda" or (self.device == "auto" and self.gpus_per_task)
        ):
            return replace(self, device="cuda")
        return replace(self, device=resolve_device(self.device))

    def run(self, function: Function, tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
        """Call ``function(**task)`` for every task, as :func:`pfdl._internal.workers.run_tasks`
        does.

        Raises:
            WorkerLostError: If a worker was killed; on Ray, if that happened again and again.
            ModuleNotFoundError: If Ray is asked for and not installed.
        """
        yield from (
            self._on_ray(function, tasks)
            if self.backend == "ray"
            else run_tasks(function, tasks, self.jobs, device=self.device)
        )

    def _on_ray(self, function: Function, tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
        """Call the function on a Ray cluster, and yield what is finished first.

        Ray's backend for joblib will not do: it has no ``return_as``, so finished tasks could not
        be kept one by one, and a worker that is killed ends the run.
        """
        try:
            import ray
        except ImportError:
            raise ModuleNotFoundError(
                "The ray backend needs Ray: install pfdl[cluster], or use the joblib backend."
            ) from None
        started_here = not ray.is_initialized()
        if started_here:
            has_cluster = bool(os.environ.get("RAY_ADDRESS"))
            cores = joblib.effective_n_jobs(self.jobs)
            local = (
                {}
                if has_cluster
                else {"address": "local", "num_cpus": cores, "include_dashboard": False}
            )
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **local)
        running: list[Any] = []
        try:
            gpus = (
                float(self.device.startswith("cuda"))
                if self.gpus_per_task is None
                else self.gpus_per_task
            )
            remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(_call_in)
            running += [remote.remote(str(Path.cwd()), function, task) for task in tasks]
            while running:
                (done,), running[:] = ray.wait(running, num_returns=1)
                yield ray.get(done)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None  # as if it had been raised here
        except ray.exceptions.RayError as error:
            raise WorkerLostError(
                f"a task was lost on the cluster {RETRIES + 1} times"
                f" ({str(error).partition(chr(10))[0]}); what was finished is kept. Start the"
                " command again."
            ) from error
        finally:
            for task in running:
                ray.cancel(task, force=True)
            if started_here:
                ray.shutdown()


IN_SEQUENCE = Execution()
"""In this process, one task after the other, in silence."""


def _call_in(folder: str, function: Function, task: Task) -> tuple[Task, Any]:
    """Run one task in a folder of the file system that all machines share, so that relative paths
    hold.

    Where srun started Ray, its variables say that there are many tasks; a trainer would wait for
    the others.
    """
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        del os.environ[name]
    try:
        os.chdir(folder)
    except OSError as error:
        raise FileNotFoundError(
            f"the machine {platform.node()} of the cluster has no folder {folder}"
            f" ({error.strerror}); start the command in a folder that all machines of the cluster"
            " share."
        ) from error
    return call_on_threads(function, task, threads=1)
