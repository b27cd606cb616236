"""The options of commands that run many trainings: how many at a time, where, and how they share GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from pfdl.experiments.workers import Workers

PANEL = "Many at a time"
Jobs = Annotated[
    int,
    typer.Option("--jobs", "-j", help="How many at a time on this machine; -1 for all cores.", rich_help_panel=PANEL),
]
Backend = Annotated[
    str,
    typer.Option(
        help="joblib: processes of this machine; ray: the Ray cluster that RAY_ADDRESS names, else a local one.",
        rich_help_panel=PANEL,
    ),
]
GpusPerTask = Annotated[
    float | None,
    typer.Option(
        min=0.0, help="With ray, the part of a GPU that each asks for: 0.1 puts ten on one GPU.", rich_help_panel=PANEL
    ),
]


def find_device(device: str, backend: str, gpus_per_task: float | None) -> str:
    """Return the device that tasks compute on; on a cluster this machine need not have it.

    Args:
        device: What the user typed: cpu, cuda or auto.
        backend: joblib or ray.
        gpus_per_task: What the user typed, if anything.

    Raises:
        ValueError: If there is no such device here.
    """
    from pfdl._internal.devices import resolve_device

    if backend == "ray" and (device == "cuda" or (device == "auto" and gpus_per_task)):
        return "cuda"
    return resolve_device(device)


def share_cores(jobs: int, backend: str) -> int:
    """Return how many threads each training may use, so that those on this machine share its cores."""
    import joblib

    return 1 if backend == "ray" else max(1, joblib.cpu_count() // joblib.effective_n_jobs(jobs))


@contextmanager
def make_workers(
    jobs: int, backend: str, gpus_per_task: float | None, device: str, console: Console, *, threads: int = 1
) -> Iterator[Workers]:
    """Turn the options into workers, who share a GPU by NVIDIA's MPS where that can be started.

    Args:
        jobs: Tasks at a time.
        backend: joblib or ray.
        gpus_per_task: With ray, the part of a GPU that each asks for; by default a whole one if it computes on one.
        device: What :func:`find_device` returned.
        console: Where to say how the GPU is shared.
        threads: Threads of each task.

    Yields:
        The workers.

    Raises:
        ValueError: If the options do not go together.
    """
    from pfdl.experiments.mps import shared_gpu
    from pfdl.experiments.workers import Workers

    if gpus_per_task is not None and backend != "ray":
        raise ValueError(
            "--gpus-per-task is for --backend ray; on this machine alone --jobs says how many share the GPU."
        )
    on_gpu = device.startswith("cuda")
    share = float(on_gpu) if gpus_per_task is None else gpus_per_task
    if on_gpu and not share:
        raise ValueError("--gpus-per-task is 0, but the tasks compute on a GPU; give a part of one, or --device cpu.")
    workers = Workers(jobs, backend, share, threads)
    if on_gpu and backend == "joblib" and jobs != 1:
        with shared_gpu(lambda sentence: console.print(sentence, highlight=False)):
            yield workers
    else:
        yield workers
