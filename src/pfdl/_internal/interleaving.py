"""Several tasks that take turns in one process, so that a GPU has work while one of them waits.

Each has a thread, and on a GPU a stream, of its own. One thread at a time runs, and hands over only
where it calls :func:`pause`: what lies between two pauses, such as seeding a generator and drawing
from it, is never mixed with that of another task.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

Task = tuple[Any, Callable[[], Any]]
"""A name, by which the result is known, and what makes it."""

_local = threading.local()


def pause() -> None:
    """Let other tasks of this process have a turn; where there are none, do nothing."""
    running: _Running | None = getattr(_local, "running", None)
    if running is not None:
        running.pause()


def run_interleaved(
    tasks: Sequence[Task], at_a_time: int, device: str = "cpu"
) -> Iterator[tuple[Any, Any]]:
    """Run tasks that take turns, and yield the name and the result of each when it ends.

    An error in a task is raised here; the others then stop at their next pause.

    Args:
        tasks: What to run.
        at_a_time: How many are at work at any time.
        device: Where they compute; on a GPU each has a stream.
    """
    waiting = deque(tasks)
    running: deque[_Running] = deque()
    try:
        while waiting or running:
            while waiting and len(running) < at_a_time:
                running.append(_Running(*waiting.popleft(), _stream(device)))
            running[0].have_a_turn()
            if not running[0].has_ended:
                running.rotate(-1)
                continue
            task = running.popleft()
            if task.error is not None:
                raise task.error
            yield task.label, task.result
    finally:
        for task in running:
            task.stop()


def _stream(device: str) -> AbstractContextManager[Any]:
    if not device.startswith("cuda"):
        return nullcontext()
    import torch

    return torch.cuda.stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]


class _StoppedError(BaseException):
    """The task is to end."""


class _Running(threading.Thread):
    """A task at work, which runs from one pause to the next when it has a turn.

    Attributes:
        label: The name of the task.
        has_ended: Whether it has.
        result: What it returned.
        error: What it raised.
    """

    def __init__(
        self, label: Any, work: Callable[[], Any], stream: AbstractContextManager[Any]
    ) -> None:
        super().__init__(daemon=True)
        self.label = label
        self.has_ended = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._work = work
        self._stream = stream
        self._is_stopped = False
        self._turn_begins = threading.Semaphore(0)
        self._turn_ends = threading.Semaphore(0)
        self.start()

    def have_a_turn(self) -> None:
        """Let the task run to its next pause, or to its end."""
        self._turn_begins.release()
        self._turn_ends.acquire()

    def stop(self) -> None:
        """End the task at its next pause, and wait for that."""
        self._is_stopped = True
        self._turn_begins.release()
        self.join()

    def run(self) -> None:
        """Work, in the thread of the task."""
        _local.running = self
        try:
            self._await_turn()
            with self._stream:
                self.result = self._work()
        except BaseException as error:
            self.error = error
        self.has_ended = True
        self._turn_ends.release()

    def pause(self) -> None:
        """End the turn, and wait for the next one."""
        self._turn_ends.release()
        self._await_turn()

    def _await_turn(self) -> None:
        if not self._is_stopped:
            self._turn_begins.acquire()
        if self._is_stopped:
            raise _StoppedError
