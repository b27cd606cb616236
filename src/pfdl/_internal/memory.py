"""A budget of memory that threads share, so that large pieces of work wait for each other and small ones do not."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class MemoryBudget:
    """Bound the bytes that the threads of a process use at a time for one purpose.

    A number of threads alone is no bound: eight threads are right for photographs, and too many for eight files that
    were made to fill the memory.

    Args:
        total: Bytes.

    Attributes:
        total: As given.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._reset()
        if hasattr(os, "register_at_fork"):  # in a child the other threads, which would give bytes back, are gone
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._free = self.total
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, amount: int) -> Iterator[None]:
        """Wait until so many bytes are free, and hold them in the block, in which no more may be reserved.

        Args:
            amount: Bytes, at most ``total``.

        Raises:
            ValueError: If there will never be so many.
        """
        if amount > self.total:
            raise ValueError(f"{amount} bytes are more than the budget of {self.total}.")
        changed = self._changed
        with changed:
            changed.wait_for(lambda: amount <= self._free)
            self._free -= amount
        try:
            yield
        finally:
            with changed:
                self._free += amount
                changed.notify_all()
