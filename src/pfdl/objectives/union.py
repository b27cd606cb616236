"""The samples that an objective is computed on: those of one process, or of all processes that train together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from pfdl._internal.processes import rank
from pfdl.decorrelation.distributed import Meeting, gather_rows

Tensors = Mapping[str, Tensor | None]


class Union:
    """The batches of all processes as one batch; without a meeting, the batch of this process alone.

    Few parts of an objective are a mean over samples, so their average over processes is not their value on all
    samples. Here every process gets the rows of all, computes the same from them, and keeps of the result what belongs
    to its own rows.

    Args:
        here: The tensors of this process by name, one row per sample.
        wanted: Names of the tensors that are gathered.
        meeting: How many rows every process has; a number to draw from; and how many rows of features every process
            has, which may be a sample of its rows. None for this process alone.

    Attributes:
        here: The tensors of this process.
        everywhere: The tensors of all processes; gradients reach the rows of this one.
    """

    def __init__(self, here: Tensors, wanted: Collection[str], meeting: Meeting | None) -> None:
        self.here: Tensors = here
        self._meeting = meeting
        self.everywhere: Tensors = here if meeting is None else self._gathered(wanted, meeting)

    def own(self, values: Tensor) -> Tensor:
        """Return of one value per sample of all processes those of this one."""
        return values if self._meeting is None else torch.split(values, self._meeting.rows)[rank()]

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of one value per sample of this process over the samples of all, with a gradient."""
        return values.mean() if self._meeting is None else self._meeting.batch().mean(values)

    @contextmanager
    def same_draws(self) -> Iterator[None]:
        """Let all processes draw the same random numbers, and leave their own sequences as they were."""
        if self._meeting is None:
            yield
            return
        devices = {tensor.device for tensor in self.here.values() if tensor is not None and tensor.is_cuda}
        with torch.random.fork_rng(devices):
            seed = self._meeting.numbers[0][0]
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would visit every kind of device
            for device in devices:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            yield

    def _gathered(self, wanted: Collection[str], meeting: Meeting) -> Tensors:
        return {
            name: gather_rows(tensor, meeting.numbers[1] if name == "features" else meeting.rows, rank())
            for name, tensor in self.here.items()
            if name in wanted and tensor is not None
        }
