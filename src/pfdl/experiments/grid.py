"""Run a grid of independent tasks in parallel, keep every finished one, and after a kill do only what is missing."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pfdl._internal.files import read_json, write_json
from pfdl._internal.runs import set_aside

Task = Mapping[str, Any]
ResultRow = Mapping[str, Any]
BACKENDS = ("joblib", "ray")


def run_grid(
    function: Callable[..., Sequence[ResultRow]],
    tasks: Sequence[Task],
    folder: Path,
    *,
    n_jobs: int = 1,
    backend: str = "joblib",
    console: Console | None = None,
) -> pd.DataFrame:
    """Call ``function(**task)`` for every task that has no stored result yet, and return the rows of all of them.

    Each finished task is one file in ``folder``, named by its content and written whole or not at all. A task is known
    by its arguments alone: whatever changes its outcome must be among them.

    Args:
        function: A function at the top level of a module; its rows are dictionaries of what JSON can hold.
        tasks: Keyword arguments of each call, of what JSON can hold.
        folder: Where the results are kept; made if missing.
        n_jobs: Processes on this machine (joblib's counting: −1 is all cores).
        backend: ``"joblib"``, or ``"ray"``: the cluster that ``RAY_ADDRESS`` names, or else a local Ray of ``n_jobs``.
        console: Where to draw the progress bar; none is drawn where this is no terminal.

    Returns:
        One row per row returned, in the order of the tasks, with the task's arguments in front.
    """
    if backend not in BACKENDS:
        raise ValueError(f"Unknown backend {backend!r}: choose one of {', '.join(map(repr, BACKENDS))}.")
    if n_jobs == 0:
        raise ValueError("n_jobs is 0; give the number of processes, or -1 for all cores.")
    folder.mkdir(parents=True, exist_ok=True)
    missing = [task for task in tasks if _load(folder, task) is None]
    if missing:
        execute = _with_ray if backend == "ray" else _with_joblib
        with _progress(console) as progress:
            bar = None if progress is None else progress.add_task("tasks", total=len(tasks))
            if progress is not None and bar is not None:
                progress.advance(bar, len(tasks) - len(missing))
            for task, rows in execute(function, missing, n_jobs):
                if not folder.is_dir():  # to write would bring back a part of the run that somebody deleted
                    raise FileNotFoundError(f"{folder} was removed while its tasks ran; start the command again.")
                write_json(_path(folder, task), {"task": dict(task), "rows": [dict(row) for row in rows]})
                if progress is not None and bar is not None:
                    progress.advance(bar)
    return pd.DataFrame([{**task, **row} for task in tasks for row in _load(folder, task) or ()])


def _path(folder: Path, task: Task) -> Path:
    digest = hashlib.sha256(json.dumps(task, sort_keys=True).encode()).hexdigest()
    return folder / f"{digest[:24]}.json"


def _load(folder: Path, task: Task) -> list[ResultRow] | None:
    """Return the rows of a finished task, or None. A file that is not what this runner wrote is set aside."""
    path = _path(folder, task)
    try:
        stored = read_json(path)
        rows = stored.get("rows") if isinstance(stored, dict) else None
        if (
            not isinstance(rows, list)
            or not all(isinstance(row, dict) for row in rows)
            or stored.get("task") != json.loads(json.dumps(task))
        ):
            raise ValueError(f"{path} does not hold the results of the task that its name says.")
    except FileNotFoundError:
        return None
    except ValueError as error:
        set_aside(path, error)
        return None
    return rows


def _call(function: Callable[..., Sequence[ResultRow]], task: Task) -> tuple[Task, Sequence[ResultRow]]:
    """Run one task on one core: processes run side by side, and their threads would only fight."""
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            return task, function(**task)
    finally:
        torch.set_num_threads(threads)


def _with_joblib(
    function: Callable[..., Sequence[ResultRow]], tasks: Sequence[Task], n_jobs: int
) -> Iterator[tuple[Task, Sequence[ResultRow]]]:
    parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    yield from parallel(joblib.delayed(_call_for)(os.getpid(), function, task) for task in tasks)


def _call_for(asker: int, function: Callable[..., Sequence[ResultRow]], task: Task) -> tuple[Task, Sequence[ResultRow]]:
    """Run one task, and give it up as soon as the process that asked for it is gone."""
    if os.getppid() == asker:
        _end_with_parent()
    return _call(function, task)


@cache
def _end_with_parent() -> None:
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _with_ray(
    function: Callable[..., Sequence[ResultRow]], tasks: Sequence[Task], n_jobs: int
) -> Iterator[tuple[Task, Sequence[ResultRow]]]:
    try:
        import ray
    except ImportError:
        raise ModuleNotFoundError(
            "The ray backend needs Ray: install pfdl[cluster], or use the joblib backend."
        ) from None
    started_here = not ray.is_initialized()
    if started_here:
        local = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": joblib.effective_n_jobs(n_jobs)}
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **local)
    try:
        remote = ray.remote(num_cpus=1)(_call)
        running = [remote.remote(function, task) for task in tasks]
        while running:
            done, running = ray.wait(running, num_returns=1)
            yield ray.get(done[0])
    finally:
        if started_here:
            ray.shutdown()


def _progress(console: Console | None) -> AbstractContextManager[Progress | None]:
    if console is None or not console.is_terminal:
        return nullcontext()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )
