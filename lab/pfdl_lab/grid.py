"""Run a grid of independent tasks, keep every finished one, and after a kill do only what is
missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from pfdl_lab.report.reading import read_task
from pfdl_lab.workers import IN_SEQUENCE, Execution

ResultRow = Mapping[str, Any]


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
    folder.mkdir(parents=True, exist_ok=True)
    missing = unfinished(tasks, folder)
    if missing:
        with _progress(execution.console, len(tasks), len(tasks) - len(missing)) as (
            watched,
            advance,
        ):
            for task, rows in execution.run(watched(function), missing):
                if (
                    not folder.is_dir()
                ):  # to write would bring back a part of the run that was deleted
                    raise FileNotFoundError(
                        f"{folder} was removed while its tasks ran; start the command again."
                    )
                write_json(
                    _path(folder, task), {"task": dict(task), "rows": [dict(row) for row in rows]}
                )
                advance()
    return pd.DataFrame(
        [{**task, **row} for task in tasks for row in stored_rows(task, folder) or ()]
    )


def write_results(results: pd.DataFrame, folder: Path, **how: Any) -> None:
    """Write ``results.csv`` of a run folder, whole or not at all; further arguments are those of
    ``to_csv``.
    """
    write_atomically(folder / "results.csv", results.to_csv(index=False, **how))


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
    try:
        stored, rows = read_task(path)
        if stored != json.loads(json.dumps(task)):
            raise ValueError(f"{path} does not hold the results of the task that its name says.")
    except FileNotFoundError:
        return None
    except ValueError as error:
        set_aside(path, error)
        return None
    return rows


@contextmanager
def _progress(
    console: Console | None, total: int, done: int
) -> Iterator[tuple[Callable[[Function], Function], Callable[[], None]]]:
    """Show how many tasks are done; yield what to pass their function through, and what to call
    after each.
    """
    if console is None or not console.is_terminal:
        say, numbers = (console or Console(quiet=True)).print, count(done + 1)
        yield (
            lambda function: function,
            lambda: say(f"{next(numbers)} of {total} tasks done", highlight=False),
        )
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
