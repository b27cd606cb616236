"""The options of commands that run many trainings: how many at a time, where, and how they share GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pfdl._internal.settings import setting
from pfdl.cli.common import this_command

if TYPE_CHECKING:
    from pfdl._internal.workers import Execution


@dataclass(frozen=True)
class Parallel:
    """How many trainings run at a time, and where.

    Args:
        jobs: How many at a time on this machine; -1 for all cores.
        backend: joblib: processes of this machine; ray: the Ray cluster that RAY_ADDRESS names, else a local one.
        gpus_per_task: With ray, the part of a GPU that each asks for: 0.1 puts ten on one GPU.
    """

    jobs: int = setting(1, short="-j")
    backend: str = setting("joblib")
    gpus_per_task: float | None = setting(None)

    def find_device(self, device: str) -> str:
        """Return the device that tasks compute on, of cpu, cuda or auto; on a cluster this machine need not have it."""
        from pfdl._internal.devices import resolve_device

        if self.backend == "ray" and (device == "cuda" or (device == "auto" and self.gpus_per_task)):
            return "cuda"
        return resolve_device(device)

    def execution(self, device: str, *, share_cores: bool = False) -> Execution:
        """Return what an experiment takes; ValueError if the options do not go together.

        Args:
            device: What the user typed, or what :meth:`find_device` returned.
            share_cores: Whether tasks on this machine share its cores; otherwise each has one thread.
        """
        import joblib
        from rich.console import Console

        from pfdl._internal.workers import Execution, Workers

        device = self.find_device(device)
        on_gpu, on_ray = device.startswith("cuda"), self.backend == "ray"
        if self.gpus_per_task is not None and not on_ray:
            raise ValueError(
                "--gpus-per-task is for --backend ray; on this machine alone --jobs says how many share the GPU."
            )
        gpus = float(on_gpu) if self.gpus_per_task is None else self.gpus_per_task
        if on_gpu and not gpus:
            raise ValueError("--gpus-per-task is 0, but tasks compute on a GPU; give a part of one, or --device cpu.")
        workers = Workers(self.jobs, self.backend, gpus)
        if share_cores and not on_ray:
            workers = replace(workers, threads=max(1, joblib.cpu_count() // joblib.effective_n_jobs(self.jobs)))
        return Execution(device, workers, Console(stderr=True), this_command())
