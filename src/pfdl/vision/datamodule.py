"""Context data for a Lightning trainer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from pfdl._internal.processes import from_first
from pfdl._internal.validation import check_choice, check_count
from pfdl.contexts import InferredContexts, find_contexts
from pfdl.contexts.inference import METHODS
from pfdl.data.context_images import ContextImages
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource
from pfdl.vision.loading import EpochSampler, ResumableLoader, balanced_order

CONTEXTS = ("hidden", "known", "inferred")
SAMPLERS = ("shuffle", "groups")
TRAIN, VALIDATION = "train", "validation"


class ContextDataModule(LightningDataModule):
    """The training and validation sets of a manifest; the validation set has the training set's distribution.

    Batches are (images as bytes, labels, contexts). No test image is read. The order of an epoch follows from the seed
    and the epoch's number alone.

    Args:
        source: Where the images come from.
        manifest: Which image is in which set.
        image_size: Height and width.
        batch_size: Images per step, of all processes together; what does not fill a last step is left for another
            epoch. The batches of several processes together are the batch of one.
        num_workers: Processes that load images; 0 loads in the training process, which is fastest for a cached set.
        cache: Whether to keep decoded images in memory; by default sets up to 2 GB.
        contexts: What training may know of contexts: ``"hidden"``, nothing, as in the protocol of the paper;
            ``"known"``, the truth; or ``"inferred"``, what :func:`pfdl.infer_contexts` finds in the training images.
            An objective such as ``balance``, ``groupdro`` or ``irm`` needs one of the latter two.
        infer_by: How contexts are inferred: the ``method`` of :func:`pfdl.infer_contexts`, by default the best that is
            confirmed.
        confirm: Whether inferred contexts must be confirmed; otherwise the most stable ones are taken as they are.
        validation_contexts: Whether inferred contexts are those of the training and validation images together, for
            an accuracy of the worst group; by default the validation images play no part.
        sampler: ``"shuffle"``, every image once an epoch; or ``"groups"``, which draws all groups (one class in
            one context) equally often, by :func:`pfdl.context_sampler`; with one context it is ``"shuffle"``.
        describe: With inferred contexts, from a batch of images as bytes, shape (n, 3, h, w), to features, shape
            (n, p); by default :func:`pfdl.image_statistics`. A pretrained network's features see more.
        seed: Of the order, and of inferring.

    Raises:
        ValueError: If an argument cannot be used, or the sampler needs contexts that are hidden.

    Attributes:
        inferred: What :func:`pfdl.contexts.find_contexts` found and why it is believed; None before :meth:`setup`, and
            where nothing is inferred.
    """

    def __init__(
        self,
        source: ContextSource,
        manifest: Manifest,
        *,
        image_size: int = 64,
        batch_size: int = 64,
        num_workers: int = 0,
        cache: bool | None = None,
        contexts: str = "hidden",
        infer_by: str = "auto",
        confirm: bool = True,
        validation_contexts: bool = False,
        sampler: str = "shuffle",
        describe: Callable[[Tensor], Tensor] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_choice("contexts", contexts, CONTEXTS)
        check_choice("infer_by", infer_by, METHODS)
        check_choice("sampler", sampler, SAMPLERS)
        check_count("batch_size", batch_size, 2)
        check_count("num_workers", num_workers, 0)
        if sampler == "groups" and contexts == "hidden":
            raise ValueError("sampler is 'groups', which needs contexts; set contexts to 'known' or 'inferred'.")
        self.source = source
        self.manifest = manifest
        self.image_size = image_size
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.cache = cache
        self.contexts = contexts
        self.infer_by = infer_by
        self.confirm = confirm
        self.validation_contexts = validation_contexts
        self.sampler = sampler
        self.describe = describe
        self.seed = seed
        self.inferred: InferredContexts | None = None
        self._sets: dict[str, ContextImages] = {}
        self._contexts: dict[str, Tensor] = {}

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.manifest.classes)

    def setup(self, stage: str) -> None:
        """Read both sets and infer contexts if asked to, once."""
        if self._sets:
            return
        for name in (TRAIN, VALIDATION):
            if name in self.manifest.set_names:
                images = ContextImages(
                    self.source,
                    self.manifest,
                    name,
                    size=self.image_size,
                    cache=self.cache,
                    reveal_contexts=self.contexts == "known",
                )
                self._sets[name], self._contexts[name] = images, images.contexts
        if self.contexts == "inferred":
            names = [name for name in self._sets if name == TRAIN or self.validation_contexts]
            sets = [self._sets[name] for name in names]
            self.inferred = from_first(lambda: self.infer(sets))
            contexts = torch.tensor(self.inferred.contexts).long()
            self._contexts.update(zip(names, torch.split(contexts, [len(one) for one in sets]), strict=True))

    def infer(self, sets: Sequence[ContextImages]) -> InferredContexts:
        """Infer the contexts of the images of some sets, in their order; override it to bring your own.

        Of several processes the first one does it, and tells the others.
        """
        labels = torch.cat([images.labels for images in sets])
        infer = find_contexts if self.confirm else partial(find_contexts, confirmation=0.0)
        return infer(ConcatDataset(sets), labels, method=self.infer_by, describe=self.describe, seed=self.seed)

    @property
    def train_set(self) -> ContextImages:
        """The training images, once :meth:`setup` has read them."""
        return self._sets[TRAIN]

    @property
    def train_contexts(self) -> Tensor:
        """What training knows of the context of each training image, shape (n,); −1 where it is hidden."""
        return self._contexts[TRAIN]

    def train_dataloader(self) -> DataLoader[Any]:
        """Return batches of one size, in an order that the seed and the epoch decide."""
        images = _Labelled(self._sets[TRAIN], self._contexts[TRAIN])
        processes, rank = self._place()
        order = None
        if self.sampler == "groups":
            order = balanced_order(self.train_set.labels, self.train_contexts, self.seed)
        length = len(images) // self.batch_size * self.batch_size
        sampler = EpochSampler(images, processes, rank, seed=self.seed, order=order, length=length or None)
        return ResumableLoader(images, self._share(processes), sampler=sampler, **self._settings())

    def val_dataloader(self) -> DataLoader[Any] | list[DataLoader[Any]]:
        """Return the validation set in order; nothing if the manifest holds none out."""
        if VALIDATION not in self._sets:
            return []
        images = _Labelled(self._sets[VALIDATION], self._contexts[VALIDATION])
        processes, rank = self._place()
        sampler: DistributedSampler[Any] | None = None
        if processes > 1:
            sampler = DistributedSampler(images, processes, rank, shuffle=False)
        return DataLoader(
            images, self._share(processes), sampler=sampler, generator=torch.Generator(), **self._settings()
        )

    def _place(self) -> tuple[int, int]:
        """Return the number of processes and which of them this is."""
        return (self.trainer.world_size, self.trainer.global_rank) if self.trainer else (1, 0)

    def _share(self, processes: int) -> int:
        """Return the images of one process in a step."""
        check_share(self.batch_size, processes)
        return self.batch_size // processes

    def _settings(self) -> dict[str, Any]:
        return {
            "num_workers": self.num_workers,
            "persistent_workers": self.num_workers > 0,
            "pin_memory": torch.cuda.is_available(),
            "collate_fn": _as_it_is,
        }


def _as_it_is(batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the batch that a :class:`_Labelled` has already put together."""
    return batch


def check_share(batch_size: int, processes: int) -> None:
    """Raise unless processes can share the images of a step evenly."""
    if batch_size % processes:
        raise ValueError(
            f"batch_size is {batch_size}, the images of a step over all {processes} processes; give a multiple of "
            f"{processes}."
        )


class _Labelled(Dataset[tuple[Tensor, ...]]):
    """Batches of images with their labels and the contexts that training may know."""

    def __init__(self, images: ContextImages, contexts: Tensor) -> None:
        self.images, self.contexts = images, contexts

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return tuple(part[0] for part in self.__getitems__([index]))

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        """Return the images, labels and contexts of a batch; PyTorch's loader asks for samples in this way."""
        rows = torch.tensor(indices)
        return self.images.batch(rows), self.images.labels[rows], self.contexts[rows]
