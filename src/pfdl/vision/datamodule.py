"""Context data for a Lightning trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from pfdl._internal.validation import check_choice, check_count
from pfdl.contexts.inference import infer_contexts
from pfdl.contexts.statistics import image_statistics
from pfdl.data.context_images import HIDDEN_CONTEXT, ContextImages
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource


class ContextDataModule(LightningDataModule):
    """The training and validation sets of a manifest; the validation set has the training set's distribution.

    Batches are (images as bytes, labels, contexts). No test image is read. The order of an epoch follows from the seed
    and the epoch's number alone.

    Args:
        source: Where the images come from.
        manifest: Which image is in which set.
        image_size: Height and width.
        batch_size: Images per batch; what does not fill a last batch is left for another epoch.
        num_workers: Processes that load images; 0 loads in the training process, which is fastest for a cached set.
        cache: See :class:`pfdl.data.ContextImages`.
        contexts: What training may know of contexts: ``"hidden"``, nothing, as in the protocol of the paper;
            ``"known"``, the truth; or ``"inferred"``, what :func:`pfdl.infer_contexts` finds in the training images.
            An objective such as ``balance``, ``groupdro`` or ``irm`` needs one of the latter two.
        describe: With inferred contexts, from images as bytes, shape (n, 3, h, w), to features, shape (n, p); by
            default :func:`pfdl.image_statistics`. A pretrained network's features see more.
        seed: Of the order, and of inferring.
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
        describe: Callable[[Tensor], Tensor] = image_statistics,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_choice("contexts", contexts, ("hidden", "known", "inferred"))
        check_count("batch_size", batch_size, 2)
        check_count("num_workers", num_workers, 0)
        self.source = source
        self.manifest = manifest
        self.image_size = image_size
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.cache = cache
        self.contexts = contexts
        self.describe = describe
        self.seed = seed
        self._sets: dict[str, ContextImages] = {}

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.manifest.classes)

    def setup(self, stage: str) -> None:
        """Read both sets, once."""
        for name in ("train", "validation"):
            if name in self.manifest.set_names and name not in self._sets:
                self._sets[name] = ContextImages(
                    self.source,
                    self.manifest,
                    name,
                    size=self.image_size,
                    cache=self.cache,
                    reveal_contexts=self.contexts == "known",
                )
        if self.contexts == "inferred" and bool((self.train_set.contexts == HIDDEN_CONTEXT).all()):
            self.train_set.contexts = self.infer()

    def infer(self) -> Tensor:
        """The inferred contexts of the training images, shape (n,); override it to bring your own."""
        images = self.train_set
        features = self.describe(images.images)
        return torch.from_numpy(infer_contexts(features, images.labels, seed=self.seed))

    @property
    def train_set(self) -> ContextImages:
        """The training images, once :meth:`setup` has read them."""
        return self._sets["train"]

    def train_dataloader(self) -> DataLoader[Any]:
        """Shuffled batches of one size."""
        images = self.train_set
        processes, rank = (self.trainer.world_size, self.trainer.global_rank) if self.trainer else (1, 0)
        # Seeds 0, 1, … of paired runs plus the epoch's number must not meet, hence the factor.
        sampler: DistributedSampler[Any] = DistributedSampler(images, processes, rank, seed=self.seed * 1_000_003)
        return self._loader(images, sampler=sampler, drop_last=len(images) // processes >= self.batch_size)

    def val_dataloader(self) -> DataLoader[Any] | list[DataLoader[Any]]:
        """The validation set in order; nothing if the manifest holds none out."""
        return self._loader(self._sets["validation"]) if "validation" in self._sets else []

    def _loader(self, images: ContextImages, **settings: Any) -> DataLoader[Any]:
        return DataLoader(
            images,
            self.batch_size,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # its own, so that loading draws nothing from the chance of training
            **settings,
        )
