"""Both steps of a mini-batch as one CUDA graph: fifty small launches become one.

The kernels of a step take less time than Python takes to launch them. After a few batches of one shape the step is
recorded and from then on replayed. It is recorded again when anything changed that a record fixes: the shape, where
g's parameters and their moments lie, or a number of the optimiser.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

CALLS_BEFORE = 3
"""Calls of a kind that run as usual first: kernels are compiled and buffers allocated in them."""

MOST_KEPT = 4
"""Records kept at a time, for the shapes of whole and last batches."""

Steps = Callable[[Tensor], list[Tensor]]


class CapturedSteps:
    """Runs ``steps`` as it is at first, then from a record. Copies of it start without records."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, int] = {}
        self._records: dict[Hashable, _Record] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> CapturedSteps:
        return CapturedSteps()

    def __reduce__(self) -> tuple[type[CapturedSteps], tuple[()]]:
        return CapturedSteps, ()

    def run(self, steps: Steps, u: Tensor, optimizer: Optimizer, settings: Hashable) -> list[Tensor]:
        """Return what ``steps(u)`` returns, in memory of its own.

        Args:
            steps: Work on the GPU that does not look at results and depends on ``settings`` and the optimiser only.
            u: Its input.
            optimizer: Whose step is part of it.
            settings: What else the work depends on.
        """
        key = (u.shape, u.device, settings, _state_of(optimizer))
        if key not in self._records:
            self._seen[key] = self._seen.get(key, 0) + 1
            if self._seen[key] <= CALLS_BEFORE:
                return steps(u.clone())  # aligned in memory as the record's input will be, so that it compiles the same
            if len(self._records) == MOST_KEPT:
                self._records.clear()
            self._seen.clear()
            self._records[key] = _Record(steps, u, optimizer)
        return self._records[key].replay(u)


class _Record:
    def __init__(self, steps: Steps, u: Tensor, optimizer: Optimizer) -> None:
        self.u = torch.empty_like(u)
        self.graph = torch.cuda.CUDAGraph()
        before = [group["capturable"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["capturable"] = True  # the fused step always is; PyTorch asks for the word while it records
        try:
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                results = steps(self.u)
                self.shapes = [result.shape for result in results]
                self.together = torch.cat([result.reshape(-1) for result in results])
        finally:
            for group, value in zip(optimizer.param_groups, before, strict=True):
                group["capturable"] = value

    def replay(self, u: Tensor) -> list[Tensor]:
        self.u.copy_(u)
        self.graph.replay()
        # The next replay overwrites its results, while losses of several batches may wait for their backward pass.
        parts = torch.split(self.together.clone(), [shape.numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]


def _state_of(optimizer: Optimizer) -> Hashable:
    numbers = tuple(
        (name, value) for group in optimizer.param_groups for name, value in group.items() if name != "params"
    )
    places = tuple(
        (parameter.data_ptr(), *(value.data_ptr() for value in optimizer.state[parameter].values()))
        for group in optimizer.param_groups
        for parameter in group["params"]
    )
    return numbers, places
