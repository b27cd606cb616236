"""Run a grid of independent tasks, keep every finished one, and after a kill do only what is
missing.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from pfdl._internal.files import write_atomically, write_json
from pfdl._internal.workers import Function, Task
from pfdl.runs import set_aside
from pfdl_lab.progress import task_bars
from pfdl_lab.report.reading import RESULTS, check_task, read_task
from pfdl_lab.workers import IN_SEQUENCE, Execution

ResultRow = Mapping[str, Any]
PACK = "finished.jsonl.gz"
"""What the finished tasks of a finished run left, a line each."""


def run_grid(
    function: Callable[..., Sequence[ResultRow]],
    tasks: Sequence[Task],
    folder: Path,
    execution: Execution = IN_SEQUENCE,
) -> pd.DataFrame:
    """Call ``function(**task)`` for every task that has no stored result yet, and return the rows
    of all of them.

    Each finished task is one file in ``folder``, named by its content and written whole or not at
    all. A task is known by its arguments alone: whatever changes its outcome must be among them.

    Args:
        function: A function at the top level of a module; its rows are dictionaries of what JSON
            can hold.
        tasks: Keyword arguments of each call, of what JSON can hold.
        folder: Where the results are kept; made if missing.
        execution: Where the tasks run, and how many at a time. Its console shows progress: on a
            terminal a bar, and one for each task at work that calls
            :func:`pfdl_lab.progress.report`; elsewhere a line for each finished task.

    Returns:
        One row per row returned, in the order of the tasks, with the task's arguments in front.

    Raises:
        WorkerLostError: If a worker was killed; what was finished is kept.
    """
    missing = unfinished(tasks, folder)
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        done = len(tasks) - len(missing)
        with _progress(execution.console, len(tasks), done) as (watched, advance):
            for task, rows in execution.run(watched(function), missing):
                # To write would bring back a part of the run that was deleted
                if not folder.is_dir():
                    raise FileNotFoundError(
                        f"{folder} was removed while its tasks ran; start the command again."
                    )
                write_json(
                    _path(folder, task), {"task": dict(task), "rows": [dict(row) for row in rows]}
                )
                advance()
    lines = list[ResultRow]()
    for task in tasks:
        lines += [{**task, **row} for row in stored_rows(task, folder) or ()]
    return pd.DataFrame(lines)


def finish(results: pd.DataFrame, folder: Path, *task_folders: str, **how: Any) -> None:
    """Write ``results.csv`` of a run folder, and leave no file for each task behind.

    Args:
        results: The table.
        folder: The run folder.
        task_folders: Names of the folders of tasks in it. What they hold goes into one compressed
            file each, from which a larger run resumes.
        how: Further arguments of ``to_csv``.
    """
    write_atomically(folder / RESULTS, results.to_csv(index=False, **how))
    for name in task_folders:
        _pack(folder / name)


def _pack(folder: Path) -> None:
    """Put the files of finished tasks into one."""
    files = sorted(folder.glob("*.json"))
    if not files:
        return
    kept = dict(_packed(folder))
    for path in files:
        with suppress(ValueError):  # a damaged one is set aside when its task is asked for
            task, rows = read_task(path)
            kept[path.stem] = {"task": task, "rows": rows}
    lines = [json.dumps([name, one]) for name, one in sorted(kept.items())]
    write_atomically(folder / PACK, gzip.compress("\n".join(lines).encode(), mtime=0))
    for path in files:
        if path.stem in kept:
            path.unlink()


def _packed(folder: Path) -> Mapping[str, Any]:
    """Return what the finished tasks of a folder left, by the names of their files."""
    path = folder / PACK
    try:
        return _read_pack(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return {}
    except (EOFError, OSError, ValueError, zlib.error) as error:
        set_aside(path, error)
        return {}


@lru_cache(maxsize=4)
def _read_pack(path: Path, changed: int) -> Mapping[str, Any]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return dict(json.loads(line) for line in lines)


def unfinished(tasks: Sequence[Task], folder: Path) -> list[Task]:
    """Return the tasks that have no stored result yet."""
    return [task for task in tasks if stored_rows(task, folder) is None]


def _path(folder: Path, task: Task) -> Path:
    digest = hashlib.sha256(json.dumps(task, sort_keys=True).encode()).hexdigest()
    return folder / f"{digest[:24]}.json"


def stored_rows(task: Task, folder: Path) -> Sequence[ResultRow] | None:
    """Return the rows of a finished task, or None; a file that :func:`run_grid` did not write so is
    set aside.
    """
    path = _path(folder, task)
    kept = None if path.exists() else _packed(folder).get(path.stem)
    try:
        stored, rows = read_task(path) if kept is None else check_task(kept, folder / PACK)
        if stored != json.loads(json.dumps(task)):
            raise ValueError(f"{path} does not hold the results of the task that its name says.")
    except FileNotFoundError:
        return None
    except ValueError as error:
        if kept is None:
            set_aside(path, error)
        return None
    return rows


def _print_lines(console: Console, total: int, done: int) -> Callable[[], None]:
    """Return what prints a line for each finished task, with the time that is left."""
    began = time.monotonic()
    numbers = count(1)

    def advance() -> None:
        now = next(numbers)
        left = total - done - now
        seconds = left * (time.monotonic() - began) / now
        about = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
        ending = f", about {about} left" if left else ""
        console.print(
            f"{done + now} of {total} tasks done{ending}", highlight=False, soft_wrap=True
        )

    return advance


@contextmanager
def _progress(
    console: Console | None, total: int, done: int
) -> Iterator[tuple[Callable[[Function], Function], Callable[[], None]]]:
    """Show how many tasks are done; yield what to pass their function through, and what to call
    after each.
    """
    if console is None or not console.is_terminal:
        advance = _print_lines(console or Console(quiet=True), total, done)
        yield lambda function: function, advance
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task("tasks", total=total, completed=done)
        with task_bars(progress) as watched:
            yield watched, lambda: progress.advance(bar)
