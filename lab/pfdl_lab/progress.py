"""A progress bar for every task of a grid that is at work, in whatever process of this machine."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import Progress, TaskID

from pfdl._internal.files import write_atomically

EVERY = 0.5
"""Seconds between two looks at what tasks report."""


class _Reporting(threading.local):
    """What the task of a thread reports."""

    file: Path | None = None
    """Where it says how far it is; None where nobody draws it."""

    description = ""
    at = 0.0


_reporting = _Reporting()


def report(done: int, total: int, description: str = "") -> None:
    """Say how far the task of this process is, for the process that draws it.

    Args:
        done: How much is done.
        total: How much there is to do.
        description: What is done; by default what was said last.
    """
    mine = _reporting
    is_due = bool(description) or time.monotonic() - mine.at > EVERY
    if mine.file is None or not is_due:
        return
    mine.description = description or mine.description
    mine.at = time.monotonic()
    with suppress(OSError):  # a full disk is no reason to stop a training
        write_atomically(mine.file, json.dumps([mine.description, done, total]))


@contextmanager
def task_bars(progress: Progress) -> Iterator[Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """Draw a bar for every task that calls :func:`report`, in whatever process of this machine it
    runs.

    Args:
        progress: Where to draw.

    Yields:
        What to pass the function of the tasks through.
    """
    ended = threading.Event()
    with tempfile.TemporaryDirectory(prefix="pfdl-progress-", ignore_cleanup_errors=True) as folder:
        drawing = threading.Thread(target=_draw, args=(Path(folder), progress, ended), daemon=True)
        drawing.start()
        try:
            yield lambda function: partial(_call_reporting, function, folder)
        finally:
            ended.set()
            drawing.join()


def _call_reporting(function: Callable[..., Any], folder: str, /, **task: Any) -> Any:
    """Run one task, which may report meanwhile."""
    path = Path(folder) / f"{os.getpid()}-{threading.get_ident()}"
    # On another machine of a cluster nobody would read it
    _reporting.file = path if path.parent.is_dir() else None
    try:
        return function(**task)
    finally:
        path.unlink(missing_ok=True)
        _reporting.file = None


def _draw(folder: Path, progress: Progress, ended: threading.Event) -> None:
    """Draw what the tasks report, twice a second, until all have ended."""
    bars: dict[tuple[str, str], TaskID] = {}
    while not ended.wait(EVERY):
        said: dict[tuple[str, str], tuple[int, int]] = {}
        for path in sorted(folder.glob("[0-9]*")):
            with suppress(FileNotFoundError):  # it has just ended
                description, done, total = json.loads(path.read_text(encoding="utf-8"))
                said[path.name, description] = (done, total)
        for task in bars.keys() - said.keys():
            progress.remove_task(bars.pop(task))
        for task, (done, total) in said.items():
            if task not in bars:
                bars[task] = progress.add_task(escape(task[1]))
            progress.update(bars[task], completed=done, total=total)
    for bar in bars.values():
        progress.remove_task(bar)
