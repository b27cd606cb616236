"""Work of many small launches on a GPU as one CUDA graph.

Small kernels take less time than Python takes to launch them. After a few calls of one kind the
work is recorded, and from then on replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

CALLS_BEFORE = 3
"""Calls of a kind that run as usual first: kernels are compiled and buffers allocated in them."""

MOST_KEPT = 4
"""Records kept at a time, for the shapes of whole and last batches."""

Work = Callable[..., list[Tensor]]


class Captured:
    """Runs work as it is at first, then from a record. Copies of it start without records."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, int] = {}
        self._records: dict[Hashable, _Record] = {}

    def __reduce__(self) -> tuple[type[Captured], tuple[()]]:
        return Captured, ()

    def run(self, work: Work, inputs: list[Tensor], settings: Hashable = ()) -> list[Tensor]:
        """Return what ``work(*inputs)`` returns, on a GPU from a record where there is one.

        Args:
            work: It neither looks at results nor draws random numbers, and depends on its inputs
                and the settings only.
            inputs: Tensors without gradient, on one device.
            settings: What else the work depends on; when they change, it is recorded again.
        """
        if inputs[0].device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return work(*inputs)
        key = (tuple((value.shape, value.dtype, value.device) for value in inputs), settings)
        if key not in self._records:
            self._seen[key] = self._seen.get(key, 0) + 1
            if self._seen[key] <= CALLS_BEFORE:
                # Aligned in memory as the record's inputs will be
                return work(*(value.clone() for value in inputs))
            if len(self._records) == MOST_KEPT:
                self._records.clear()
            self._seen.clear()
            self._records[key] = _Record(work, inputs)
        return self._records[key].replay(inputs)


class _Record:
    def __init__(self, work: Work, inputs: list[Tensor]) -> None:
        self.inputs = [torch.empty_like(value) for value in inputs]
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            results = work(*self.inputs)
            self.shapes = [result.shape for result in results]
            self.together = torch.cat([result.reshape(-1) for result in results])

    def replay(self, inputs: list[Tensor]) -> list[Tensor]:
        for kept, value in zip(self.inputs, inputs, strict=True):
            kept.copy_(value)
        self.graph.replay()
        # The next replay overwrites its results, while losses of several batches may wait for their
        # backward pass.
        parts = torch.split(self.together.clone(), [shape.numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]
