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

import torch

Task = tuple[Any, Callable[[], Any]]
"""A name, by which the result is known, and what makes it."""

_local = threading.local()


def pause() -> None:
    """Let other tasks of this process have a turn; where there are none, do nothing."""
    turns: _Turns | None = getattr(_local, "turns", None)
    if turns is not None:
        turns.pass_on()


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
    turns = _Turns()
    waiting = deque(tasks)
    running = 0
    try:
        while waiting or running:
            while waiting and running < at_a_time:
                turns.start(*waiting.popleft(), _stream(device))
                running += 1
            name, result, error = turns.wait()
            running -= 1
            if error is not None:
                raise error
            yield name, result
    finally:
        turns.stop()


def _stream(device: str) -> AbstractContextManager[Any]:
    if not device.startswith("cuda"):
        return nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]


class _StoppedError(BaseException):
    """The tasks are to end."""


class _Turns:
    """Who runs: the threads of the tasks in a circle, and the caller when one of them has ended."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._order: deque[int] = deque()
        self._threads: list[threading.Thread] = []
        self._ended: deque[tuple[Any, Any, BaseException | None]] = deque()
        self._is_stopped = False
        self._caller_runs = True

    def start(
        self, name: Any, work: Callable[[], Any], stream: AbstractContextManager[Any]
    ) -> None:
        """Add a task, which waits for its turn."""
        thread = threading.Thread(target=self._run, args=(name, work, stream), daemon=True)
        with self._changed:
            self._threads.append(thread)
            thread.start()
            self._order.append(thread.ident or 0)

    def wait(self) -> tuple[Any, Any, BaseException | None]:
        """Let the tasks run until one ends; return its name, result and error."""
        with self._changed:
            self._caller_runs = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: bool(self._ended))
            self._caller_runs = True
            return self._ended.popleft()

    def pass_on(self) -> None:
        """End the turn of this thread, and wait for its next."""
        with self._changed:
            self._order.rotate(-1)
            self._changed.notify_all()
            self._await_turn()

    def stop(self) -> None:
        """End all tasks at their next pause, and wait for that."""
        with self._changed:
            self._is_stopped = True
            self._caller_runs = False
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _await_turn(self) -> None:
        mine = threading.get_ident()
        self._changed.wait_for(
            lambda: (
                self._order[0] == mine
                and not self._caller_runs
                and (self._is_stopped or not self._ended)
            )
        )
        if self._is_stopped:
            raise _StoppedError

    def _run(self, name: Any, work: Callable[[], Any], stream: AbstractContextManager[Any]) -> None:
        _local.turns = self
        result: Any = None
        problem: BaseException | None = None
        try:
            with self._changed:
                self._await_turn()
            with stream:
                result = work()
        except BaseException as error:
            problem = error
        with self._changed:
            self._order.remove(threading.get_ident())
            self._ended.append((name, result, problem))
            self._changed.notify_all()
