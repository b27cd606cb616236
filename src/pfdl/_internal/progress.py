"""Progress bars: on a terminal only, and only for what takes longer than a glance."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pfdl._internal.files import write_atomically

AFTER = 2.0
"""Seconds before a bar is drawn."""

EVERY = 0.5
"""Seconds between two looks at what tasks report."""

LINE = ".line"
"""How the name of a file ends whose text is to be printed."""


@contextmanager
def progress_bar(description: str, console: Console | None) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar for work that reports how much of it is done.

    Args:
        description: What is done, for the left of the bar.
        console: Where to draw; None for nowhere.

    Yields:
        What to call with the number of things done and the number of all things; it draws once the work has taken
        some seconds, and never where there is no terminal. The bar is gone when the block ends.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console, transient=True, disable=console is None or not console.is_terminal)
    bar = progress.add_task(description, total=None)
    began = time.monotonic()

    def show(done: int, total: int) -> None:
        progress.update(bar, completed=done, total=total)
        report(done, total)
        if not progress.live.is_started and time.monotonic() - began >= AFTER:
            progress.start()

    try:
        yield show
    finally:
        progress.stop()


_told: Path | None = None
"""The file in which the task of this process says how far it is; None where nobody draws it."""

_said = ("", 0.0)
"""The description that was reported last, and when."""


def report(done: int, total: int, description: str = "") -> None:
    """Say how far the task of this process is, for the process that draws it.

    Args:
        done: How much is done.
        total: How much there is to do.
        description: What is done; by default what was said last.
    """
    global _said
    is_due = bool(description) or time.monotonic() - _said[1] > EVERY
    if _told is not None and is_due:
        _said = (description or _said[0], time.monotonic())
        with suppress(OSError):  # a full disk is no reason to stop a training
            write_atomically(_told, json.dumps([_said[0], done, total]))


def say(line: str) -> None:
    """Print a line on standard error, above the bars where another process draws some."""
    if _told is None:
        print(line, file=sys.stderr, flush=True)
        return
    with suppress(OSError):
        write_atomically(_told.with_name(f"{_told.name}-{time.monotonic_ns()}{LINE}"), line)


@contextmanager
def training_bars(console: Console | None) -> Iterator[Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """Draw the bars of :func:`task_bars` alone, on a terminal; elsewhere nothing."""
    if console is None or not console.is_terminal:
        yield lambda function: function
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress, task_bars(progress) as watched:
        yield watched


@contextmanager
def task_bars(progress: Progress) -> Iterator[Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """Draw a bar for every task that calls :func:`report`, in whatever process of this machine it runs.

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
    global _told
    path = Path(folder) / str(os.getpid())
    _told = path if path.parent.is_dir() else None  # on another machine of a cluster nobody would read it
    try:
        return function(**task)
    finally:
        path.unlink(missing_ok=True)
        _told = None


def _draw(folder: Path, progress: Progress, ended: threading.Event) -> None:
    """Draw what the tasks report, twice a second, until all have ended; print their lines."""
    bars: dict[tuple[str, str], TaskID] = {}
    is_last = False
    while not is_last:
        is_last = ended.wait(EVERY)
        said: dict[tuple[str, str], tuple[int, int]] = {}
        for path in sorted(folder.glob("[0-9]*")):
            with suppress(FileNotFoundError):  # it has just ended
                text = path.read_text(encoding="utf-8")
                if path.suffix == LINE:
                    progress.console.print(text, highlight=False, markup=False, soft_wrap=True)
                    path.unlink()
                elif not is_last:
                    description, done, total = json.loads(text)
                    said[path.name, description] = (done, total)
        for task in bars.keys() - said.keys():
            progress.remove_task(bars.pop(task))
        for task, (done, total) in said.items():
            if task not in bars:
                bars[task] = progress.add_task(escape(task[1]))
            progress.update(bars[task], completed=done, total=total)
