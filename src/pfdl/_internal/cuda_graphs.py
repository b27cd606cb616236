"""Work of many small launches on a GPU as one CUDA graph.

Small kernels take less time than Python takes to launch them. After a few calls of one kind the
work is recorded, and from then on replayed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.optim import Optimizer

CALLS_BEFORE = 3
"""Calls of a kind that run as usual first: kernels are compiled and buffers allocated in them."""

MOST_KEPT = 4
"""Records kept at a time, for the shapes of whole and last batches."""

Work = Callable[..., list[Tensor]]

_looks = ContextVar("looks at values", default=True)


def may_look() -> bool:
    """Return whether code may wait for values that a GPU computes, such as to check them.

    A record holds what a GPU does, and Python does not run when it is replayed. So whoever records
    has checked the data before, and finds a NaN later, in a loss.
    """
    return _looks.get()


@contextmanager
def without_looking() -> Iterator[None]:
    """Let nothing inside the block look at values; see :func:`may_look`."""
    token = _looks.set(False)
    try:
        yield
    finally:
        _looks.reset(token)


@contextmanager
def capturable(optimizer: Optimizer) -> Iterator[None]:
    """Let Adam take a step that may be recorded; its state and its numbers stay the same."""
    groups = [group for group in optimizer.param_groups if group.get("capturable") is False]
    if not torch.cuda.is_available() or not torch.cuda.is_current_stream_capturing():
        groups = []
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False


class Captured:
    """Runs work as it is at first, then from a record. Copies of it start without records.

    Args:
        watches: Whether to watch the last call before a recording: work that waits for the GPU, or
            draws random numbers on the CPU, is never recorded.

    Attributes:
        obstacle: Why nothing is recorded; None if nothing is known to prevent it.
        is_recorded: Whether there has been a record.
    """

    def __init__(self, *, watches: bool = False) -> None:
        self.watches = watches
        self.obstacle: str | None = None
        self.is_recorded = False
        self._seen: dict[Hashable, int] = {}
        self._records: dict[Hashable, _Record] = {}

    def __reduce__(self) -> tuple[type[Captured], tuple[()]]:
        return Captured, ()

    def run(
        self,
        work: Work,
        inputs: list[Tensor],
        settings: Hashable = (),
        replayed: Callable[[], None] | None = None,
        remember: Callable[[], Callable[[], None]] | None = None,
    ) -> list[Tensor]:
        """Return what ``work(*inputs)`` returns, on a GPU from a record where there is one.

        Args:
            work: It does not look at results, and depends on its inputs and the settings only, and
                on what it draws from the GPU's random numbers.
            inputs: Tensors without gradient, on one device.
            settings: What else the work depends on; when they change, it is recorded again.
            replayed: Called after work that came from a record alone, for which Python did not run.
            remember: Returns what undoes all that Python counts in the work from then on: if the
                recording fails, the work runs once more.
        """
        if inputs[0].device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return work(*inputs)
        key = (tuple((value.shape, value.dtype, value.device) for value in inputs), settings)
        if key in self._records:
            results = self._records[key].replay(inputs)
            if replayed is not None:
                replayed()
            return results
        self._seen[key] = self._seen.get(key, 0) + 1
        calls = self._seen[key]
        is_due = self.obstacle is None and calls > CALLS_BEFORE
        if is_due and self._record(key, work, inputs, remember):
            return self._records[key].replay(inputs)
        # Aligned in memory as the record's inputs will be
        aligned = [value.clone() for value in inputs]
        if self.watches and calls == CALLS_BEFORE:
            return self._watch(work, aligned)
        return work(*aligned)

    def _record(
        self,
        key: Hashable,
        work: Work,
        inputs: list[Tensor],
        remember: Callable[[], Callable[[], None]] | None,
    ) -> bool:
        """Record the work, and return whether that was possible."""
        if len(self._records) == MOST_KEPT:
            self._records.clear()
        self._seen.clear()
        undo = None if remember is None else remember()
        try:
            self._records[key] = _Record(work, inputs)
        except RuntimeError as error:
            if undo is None:
                raise
            reason = str(error).partition("\n")[0]
            self.obstacle = f"recording one failed ({reason})"
            undo()
            _end_failed_recording()
            return False
        self.is_recorded = True
        return True

    def _watch(self, work: Work, inputs: list[Tensor]) -> list[Tensor]:
        """Run the work, and note if it does what a record cannot hold."""
        drawn = torch.default_generator.get_state()
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                results = work(*inputs)
            finally:
                torch.cuda.set_sync_debug_mode(before)
        for warning in caught:
            if "called a synchronizing" in str(warning.message):
                self.obstacle = "a step waits for values that the GPU computes"
            elif "prototype feature" not in str(warning.message):
                warnings.warn_explicit(
                    warning.message, warning.category, warning.filename, warning.lineno
                )
        if not torch.equal(drawn, torch.default_generator.get_state()):
            self.obstacle = "a step draws random numbers on the CPU"
        return results


def own_stream() -> torch.cuda.Stream | None:
    """Return the current stream; None where it is the default one, on which nothing is recorded.

    A record is made on the stream on which the steps before it ran: autograd remembers where it
    added up gradients.
    """
    current = torch.cuda.current_stream()
    return None if current == torch.cuda.default_stream() else current


def _end_failed_recording() -> None:
    """Let PyTorch's random numbers know that nothing is recorded any more."""
    torch.cuda.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=own_stream()):
        torch.zeros(1, device="cuda")


class _Record:
    def __init__(self, work: Work, inputs: list[Tensor]) -> None:
        self.inputs = [torch.empty_like(value) for value in inputs]
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=own_stream(), capture_error_mode="thread_local"):
            results = work(*self.inputs)
            self.shapes = [result.shape for result in results]
            self.together = torch.cat([result.reshape(-1) for result in results])

    def replay(self, inputs: list[Tensor]) -> list[Tensor]:
        for kept, value in zip(self.inputs, inputs, strict=True):
            kept.copy_(value, non_blocking=True)
        self.graph.replay()
        # The next replay overwrites its results, while losses of several batches may wait for their
        # backward pass.
        parts = torch.split(self.together.clone(), [shape.numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]
