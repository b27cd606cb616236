"""Both steps of a mini-batch as one CUDA graph.

It is recorded again when anything changed that a record fixes: the shape, where g's parameters and their moments lie,
or a number of the optimiser.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from torch import Tensor
from torch.optim import Optimizer

from pfdl._internal.cuda_graphs import Captured

Steps = Callable[[Tensor], list[Tensor]]


def run_steps(captured: Captured, steps: Steps, u: Tensor, optimizer: Optimizer, settings: Hashable) -> list[Tensor]:
    """Return what ``steps(u)`` returns, in memory of its own.

    Args:
        captured: Keeps the records.
        steps: Work on the GPU that does not look at results and depends on ``settings`` and the optimiser only.
        u: Its input.
        optimizer: Whose step is part of it.
        settings: What else the work depends on.
    """

    def recordable(u: Tensor) -> list[Tensor]:
        before = [group["capturable"] for group in optimizer.param_groups]
        if u.is_cuda and torch.cuda.is_current_stream_capturing():
            for group in optimizer.param_groups:
                group["capturable"] = True  # the fused step always is; PyTorch asks for the word while it records
        try:
            return steps(u)
        finally:
            for group, value in zip(optimizer.param_groups, before, strict=True):
                group["capturable"] = value

    return captured.run(recordable, [u], (settings, _state_of(optimizer)))


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
