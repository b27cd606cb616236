"""Progress bars: on a terminal only, and only for what takes longer than a glance."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

AFTER = 2.0
"""Seconds before a bar is drawn."""


@contextmanager
def progress_bar(description: str, console: Console | None) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar for work that reports how much of it is done.

    Args:
        description: What is done, for the left of the bar.
        console: Where to draw; None for nowhere.

    Yields:
        What to call with the number of things done and the number of all things. The bar is drawn
        once the work has taken some seconds, and never where there is no terminal; it is gone when
        the block ends.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    if console is None or not console.is_terminal:
        yield lambda done, total: None
        return
    progress = Progress(*columns, console=console, transient=True)
    bar = progress.add_task(description, total=None)
    drawing = threading.Timer(AFTER, progress.start)  # a first step may take an hour
    drawing.start()
    try:
        yield lambda done, total: progress.update(bar, completed=done, total=total)
    finally:
        drawing.cancel()
        drawing.join()
        progress.stop()
