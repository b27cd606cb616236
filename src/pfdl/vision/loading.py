"""Batches whose order follows from the seed and the epoch alone, and which can begin in the middle
of an epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from pfdl.contexts.balancing import ContextSampler, has_several
from pfdl.vision.config import TrainingConfig

AHEAD = 2
"""Batches that are made ready while one is trained on."""

SEED_STRIDE = 1_000_003
"""Seeds 0, 1, … of paired runs plus the number of an epoch must not meet, hence the factor."""


class EpochSampler(Sampler[int]):
    """Sample the indices of an epoch as a config asks for, in an order that only the seed and the
    epoch decide.

    What does not fill a last step is left for another epoch. Each of several processes gets as many
    indices: where they do not come out even, the first ones come once more.

    Args:
        config: Says the sampler, the batch size and the seed.
        labels: The classes of all samples, shape (n,).
        contexts: Their contexts, shape (n,).
        draws: How often the sampler ``"shuffle"`` draws each sample relative to the others, shape
            (n,); by default each comes once an epoch.
        processes: Number of training processes.
        rank: Which of them this is.

    Attributes:
        epoch: The epoch whose indices the next pass has.
        skipped: How many of them at its start are left out.
    """

    def __init__(
        self,
        config: TrainingConfig,
        labels: Tensor,
        contexts: Tensor,
        draws: Tensor | None = None,
        *,
        processes: int = 1,
        rank: int = 0,
    ) -> None:
        self.size = len(labels)
        self.seed = config.seed
        self.processes = processes
        self.rank = rank
        in_whole_steps = self.size // config.batch_size * config.batch_size
        self.num_samples = -(-(in_whole_steps or self.size) // processes)
        self.epoch = 0
        self.skipped = 0
        self.draws = draws if config.sampler == "shuffle" else None
        self._balanced: ContextSampler | None = None  # with one context there is nothing to balance
        balance = partial(ContextSampler, power=config.sampler_power, seed=config.seed)
        if config.sampler == "groups" and has_several(contexts):
            self._balanced = balance(labels, contexts)
        elif config.sampler == "classes" and has_several(labels):
            # Classes take the place of contexts
            self._balanced = balance(torch.zeros_like(labels), labels)

    def __len__(self) -> int:
        return self.num_samples

    def draw(self) -> list[int]:
        """Return the indices of this epoch, of which the first ones are trained on."""
        if self._balanced is not None:
            self._balanced.set_epoch(self.epoch)
            return list(self._balanced)
        generator = torch.Generator().manual_seed(self.seed * SEED_STRIDE + self.epoch)
        if self.draws is None:
            order = torch.randperm(self.size, generator=generator)
        else:
            order = torch.multinomial(self.draws, self.size, replacement=True, generator=generator)
        return order.tolist()

    def __iter__(self) -> Iterator[int]:
        """Return the rest of this epoch's indices for this process."""
        drawn = self.draw()
        # The processes take turns, so that their batches together are the batch that one process
        # would have.
        mine = range(self.rank, self.num_samples * self.processes, self.processes)
        indices = [drawn[place % len(drawn)] for place in mine]
        return iter(indices[self.skipped :])


class EpochLoader(DataLoader[Any]):
    """Load the batches of an epoch, from any of them on.

    Args:
        dataset: What is loaded.
        batch_size: Samples per batch.
        sampler: Which sample comes when.
        reads_ahead: Whether a thread makes batches ready while others are trained on.
        **settings: Of ``torch.utils.data.DataLoader``.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int,
        *,
        sampler: EpochSampler,
        reads_ahead: bool = False,
        **settings: Any,
    ) -> None:
        # A generator of its own, so that loading draws nothing from the chance of training.
        super().__init__(
            dataset, batch_size, sampler=sampler, generator=torch.Generator(), **settings
        )
        self.order = sampler
        self.reads_ahead = reads_ahead

    def read(self, epoch: int, first: int = 0) -> Iterator[Any]:
        """Yield the batches of an epoch, from its batch ``first`` on; nothing is loaded for those
        before.
        """
        self.order.epoch = epoch
        self.order.skipped = first * (self.batch_size or 1)
        return _ahead(iter(self)) if self.reads_ahead else iter(self)

    def all_samples(self) -> Iterator[Any]:
        """Yield all samples of the data set once, in batches, in the order of their indices."""
        dataset: Any = self.dataset
        for rows in torch.split(torch.arange(len(dataset)), self.batch_size or 1):
            yield dataset.__getitems__(rows.tolist())


def _ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield from an iterator that a thread runs ahead by some batches."""
    end = object()
    with ThreadPoolExecutor(1) as pool:
        ready = deque(pool.submit(next, batches, end) for _ in range(AHEAD))
        while (batch := ready.popleft().result()) is not end:
            ready.append(pool.submit(next, batches, end))
            yield batch


class TensorBatches:
    """The batches of an epoch, of samples that lie on the device where they are trained.

    Args:
        parts: Images, labels and contexts, each with as many rows, on the device.
        batch_size: Samples per batch.
        sampler: Which sample comes when.
    """

    def __init__(self, parts: Sequence[Tensor], batch_size: int, sampler: EpochSampler) -> None:
        self.parts = parts
        self.batch_size = batch_size
        self.sampler = sampler

    def __len__(self) -> int:
        return -(-len(self.sampler) // self.batch_size)

    def read(self, epoch: int, first: int = 0) -> Iterator[Sequence[Tensor]]:
        """Yield the batches of an epoch, from its batch ``first`` on."""
        self.sampler.epoch = epoch
        order = torch.tensor(list(self.sampler)).to(self.parts[0].device)
        for rows in torch.split(order, self.batch_size)[first:]:
            yield [part[rows] for part in self.parts]

    def all_samples(self) -> Iterator[Sequence[Tensor]]:
        """Yield all samples once, in batches, in the order of their indices."""
        in_batches = [torch.split(part, self.batch_size) for part in self.parts]
        return zip(*in_batches, strict=True)
