"""Ctrl-C and SIGTERM during a training: finish the step, save, stop."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class TrainingStoppedError(Exception):
    """Somebody asked the training to stop; all that it had done is saved."""


class StopRequest:
    """Listen for Ctrl-C and SIGTERM inside a ``with`` block.

    As long as there is nothing to save, the first signal raises :class:`TrainingStoppedError` at once. Once
    ``deferred`` is set it is only noted in ``requested``, for the training to save its work; a second signal has its
    usual effect.

    Attributes:
        deferred: Whether a signal waits until the training asks.
        requested: Whether somebody asked to stop.
    """

    def __init__(self) -> None:
        self.deferred = False
        self.requested = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python refuses handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
        self._previous = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self._restore()
        if not self.deferred:
            raise TrainingStoppedError("Stopped before the first step of training; the same command starts it again.")

    def _restore(self) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
