"""Batches whose order follows from the seed and the epoch alone, and which can begin in the middle of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from pfdl.contexts import context_sampler
from pfdl.contexts.balancing import has_several

SEED_STRIDE = 1_000_003
"""Seeds 0, 1, … of paired runs plus the number of an epoch must not meet, hence the factor."""


class EpochSampler(DistributedSampler[Any]):
    """Sample the indices of an epoch in an order that only the seed and the epoch decide.

    A subclass of PyTorch's sampler for processes, because Lightning leaves that one as it is.

    Args:
        dataset: What is sampled.
        processes: Number of training processes.
        rank: Which of them this is.
        seed: Of the order.
        order: From the number of an epoch to its indices; where it is None, a random permutation of all.
        length: How many indices an epoch has over all processes; by default all. Each process gets as many: where they
            do not come out even, the first indices come once more.

    Attributes:
        size: Number of samples in the data set.
        skipped: How many indices at the start of the next pass are left out.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        processes: int = 1,
        rank: int = 0,
        *,
        seed: int = 0,
        order: Callable[[int], Sequence[int]] | None = None,
        length: int | None = None,
    ) -> None:
        super().__init__(dataset, processes, rank, seed=seed * SEED_STRIDE)
        self.size = len(dataset)  # type: ignore[arg-type]
        self.order = order
        self.length = length
        self.skipped = 0
        self.share(processes, rank)

    def share(self, processes: int, rank: int) -> None:
        """Give each of several processes its own part of an epoch."""
        self.num_replicas, self.rank = processes, rank
        self.num_samples = -(-(self.length or self.size) // processes)
        self.total_size = self.num_samples * processes

    def __iter__(self) -> Iterator[int]:
        """Return the rest of this epoch's indices for this process."""
        drawn = (self.order or self._permutation)(self.epoch)
        # The processes take turns, so that their batches together are the batch that one process would have.
        mine = range(self.rank, self.total_size, self.num_replicas)
        return iter([drawn[index % len(drawn)] for index in mine][self.skipped :])

    def _permutation(self, epoch: int) -> Sequence[int]:
        order: list[int] = torch.randperm(
            self.size, generator=torch.Generator().manual_seed(self.seed + epoch)
        ).tolist()
        return order


class ResumableLoader(DataLoader[Any]):
    """Load batches; those that were trained before a stop come as None, and nothing is loaded for them.

    Lightning trains no step on a batch that is None, and counts it, so the epoch keeps its length.

    Args:
        dataset: What is loaded.
        batch_size: Samples per batch.
        sampler: Which sample comes when.
        **settings: Of ``torch.utils.data.DataLoader``.

    Attributes:
        order: The sampler.
        first_batch: The batch with which the next pass begins in earnest.
    """

    def __init__(self, dataset: Dataset[Any], batch_size: int, *, sampler: EpochSampler, **settings: Any) -> None:
        # A generator of its own, so that loading draws nothing from the chance of training.
        super().__init__(dataset, batch_size, sampler=sampler, generator=torch.Generator(), **settings)
        self.order = sampler
        self.first_batch = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """Yield None for each batch that is skipped, then the batches."""
        for _ in range(self.first_batch):
            yield None
        self.order.skipped = self.first_batch * (self.batch_size or 1)
        if self.first_batch < len(self):
            yield from super().__iter__()


def balanced_order(labels: Tensor, contexts: Tensor, seed: int) -> Callable[[int], Sequence[int]] | None:
    """Return what draws the indices of an epoch so that all groups are equally frequent; None with one context.

    Args:
        labels: The classes, shape (n,).
        contexts: The context of each sample, shape (n,).
        seed: Of the order, together with the number of the epoch.
    """
    if not has_several(contexts):
        return None
    sampler = context_sampler(labels, contexts, seed=seed)

    def order(epoch: int) -> list[int]:
        sampler.set_epoch(epoch)
        return list(sampler)

    return order
