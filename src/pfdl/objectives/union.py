"""The samples that an objective is computed on: those of one process, or of all processes that train together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from pfdl._internal.processes import rank
from pfdl.decorrelation.distributed import Batch, gather_rows

Tensors = Mapping[str, Tensor | None]


class Counts(NamedTuple):
    """How many rows every process has, and a number that all of them draw from."""

    rows: list[int]
    rows_of_features: list[int]  # which may be a sample of the rows
    seed: int


class Union:
    """The batches of all processes as one batch; without counts, the batch of this process alone.

    Few parts of an objective are a mean over samples, so their average over processes is not their value on all
    samples. Here every process gets the rows of all, computes the same from them, and keeps of the result what belongs
    to its own rows.

    Args:
        here: The tensors of this process by name, one row per sample.
        wanted: Names of the tensors that are gathered.
        counts: What the processes have; None for this process alone.

    Attributes:
        here: The tensors of this process.
        everywhere: The tensors of all processes; gradients reach the rows of this one.
    """

    def __init__(self, here: Tensors, wanted: Collection[str], counts: Counts | None) -> None:
        self.here: Tensors = here
        self._counts = counts
        self.everywhere: Tensors = here
        if counts is not None:
            self.everywhere = {
                name: gather_rows(tensor, counts.rows_of_features if name == "features" else counts.rows)
                for name, tensor in here.items()
                if name in wanted and tensor is not None
            }

    def own(self, values: Tensor) -> Tensor:
        """Return of one value per sample of all processes those of this one."""
        return values if self._counts is None else torch.split(values, self._counts.rows)[rank()]

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of one value per sample of this process over the samples of all, with a gradient."""
        if self._counts is None:
            return values.mean()
        return Batch(sum(self._counts.rows), len(self._counts.rows)).mean(values)

    @contextmanager
    def same_draws(self) -> Iterator[None]:
        """Let all processes draw the same random numbers, and leave their own sequences as they were."""
        if self._counts is None:
            yield
            return
        devices = {tensor.device for tensor in self.here.values() if tensor is not None and tensor.is_cuda}
        with torch.random.fork_rng(devices):
            # torch.manual_seed would visit every kind of device
            torch.default_generator.manual_seed(self._counts.seed)
            for device in devices:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(self._counts.seed)
            yield
