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
from pfdl.vision.config import TrainingConfig

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
        order: From the number of an epoch to its indices; by default a random permutation of all.
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
        self.order, self.length = order, length
        self.skipped = 0
        self.share(processes, rank)

    def share(self, processes: int, rank: int) -> None:
        """Give each of several processes its own part of an epoch."""
        self.num_replicas, self.rank = processes, rank
        self.num_samples = -(-(self.length or self.size) // processes)
        self.total_size = self.num_samples * processes

    def __iter__(self) -> Iterator[int]:
        """Return the rest of this epoch's indices for this process."""
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        drawn = self.order(self.epoch) if self.order else torch.randperm(self.size, generator=generator).tolist()
        # The processes take turns, so that their batches together are the batch that one process would have.
        mine = range(self.rank, self.total_size, self.num_replicas)
        return iter([drawn[index % len(drawn)] for index in mine][self.skipped :])


class EpochLoader(DataLoader[Any]):
    """Load the batches of an epoch, from any of them on.

    Args:
        dataset: What is loaded.
        batch_size: Samples per batch.
        sampler: Which sample comes when.
        **settings: Of ``torch.utils.data.DataLoader``.
    """

    def __init__(self, dataset: Dataset[Any], batch_size: int, *, sampler: EpochSampler, **settings: Any) -> None:
        # A generator of its own, so that loading draws nothing from the chance of training.
        super().__init__(dataset, batch_size, sampler=sampler, generator=torch.Generator(), **settings)
        self.order = sampler

    def read(self, epoch: int, first: int = 0) -> Iterator[Any]:
        """Yield the batches of an epoch, from its batch ``first`` on; nothing is loaded for those before."""
        self.order.set_epoch(epoch)
        self.order.skipped = first * (self.batch_size or 1)
        return iter(self)

    def all_samples(self) -> Iterator[Any]:
        """Yield all samples of the data set once, in batches, in the order of their indices."""
        dataset: Any = self.dataset
        for rows in torch.split(torch.arange(len(dataset)), self.batch_size or 1):
            yield dataset.__getitems__(rows.tolist())


class TensorBatches:
    """The batches of an epoch, of samples that lie on the device where they are trained.

    Args:
        parts: Images, labels and contexts, each with as many rows, on the device.
        batch_size: Samples per batch.
        sampler: Which sample comes when.
    """

    def __init__(self, parts: Sequence[Tensor], batch_size: int, sampler: EpochSampler) -> None:
        self.parts, self.batch_size, self.sampler = parts, batch_size, sampler

    def __len__(self) -> int:
        return -(-len(self.sampler) // self.batch_size)

    def read(self, epoch: int, first: int = 0) -> Iterator[Sequence[Tensor]]:
        """Yield the batches of an epoch, from its batch ``first`` on."""
        self.sampler.set_epoch(epoch)
        order = torch.tensor(list(self.sampler)).to(self.parts[0].device)
        for rows in torch.split(order, self.batch_size)[first:]:
            yield [part[rows] for part in self.parts]

    def all_samples(self) -> Iterator[Sequence[Tensor]]:
        """Yield all samples once, in batches, in the order of their indices."""
        return zip(*(torch.split(part, self.batch_size) for part in self.parts), strict=True)


def make_sampler(
    config: TrainingConfig, labels: Tensor, contexts: Tensor, *, processes: int = 1, rank: int = 0
) -> EpochSampler:
    """Return the sampler that a config asks for; what does not fill a last step is left for another epoch."""
    order = None
    if config.sampler == "groups":
        order = balanced_order(labels, contexts, config.seed)
    elif config.sampler == "classes":  # classes take the place of contexts: one context would not be balanced
        order = balanced_order(torch.zeros_like(labels), labels, config.seed)
    images: Any = labels  # of which the sampler takes no more than the length
    length = len(labels) // config.batch_size * config.batch_size or None
    return EpochSampler(images, processes, rank, seed=config.seed, order=order, length=length)


def balanced_order(labels: Tensor, contexts: Tensor, seed: int) -> Callable[[int], Sequence[int]] | None:
    """Return what draws the indices of an epoch so that all groups are equally frequent; None with one context."""
    if not has_several(contexts):
        return None
    sampler = context_sampler(labels, contexts, seed=seed)

    def order(epoch: int) -> list[int]:
        sampler.set_epoch(epoch)
        return list(sampler)

    return order
