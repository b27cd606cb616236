"""The images of a training: its sets, what it knows of their contexts, and its batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from pfdl._internal.files import read_json, read_table, write_atomically, write_json
from pfdl._internal.processes import rank, run_on_first, world_size
from pfdl._internal.runs import INFERRED_CONTEXTS, WHY_CONTEXTS, set_aside
from pfdl._internal.validation import check_count
from pfdl.contexts import InferredContexts, find_contexts
from pfdl.contexts.network import NETWORK_METHODS
from pfdl.data.context_images import ContextImages
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource
from pfdl.vision.config import TrainingConfig
from pfdl.vision.loading import EpochLoader, make_sampler

TRAIN, VALIDATION = "train", "validation"
BATCH = 256
"""Images at a time that a first network looks at."""


class TrainingData:
    """The training and validation sets of a manifest; the validation set has the training set's distribution.

    Batches are (images as bytes, labels, contexts), of several processes together the batches of one. No test image is
    read. The order of an epoch follows from the seed and the epoch's number alone. With inferred contexts and the
    selection by worst group, contexts are inferred in the training and validation images together; otherwise the
    validation images play no part.

    Args:
        config: How to train: the size of images and batches, contexts, sampler and seed are taken from it.
        source: Where the images come from.
        manifest: Which image is in which set.
        num_workers: Processes that load images; 0 loads in the training process, which is fastest for a cached set.
        cache: Whether to keep decoded images in memory; by default sets up to 2 GB.
        describe: With inferred contexts, from a batch of images as bytes, shape (n, 3, h, w), to features, shape
            (n, p); by default :func:`pfdl.image_statistics`. A pretrained network's features see more.
        folder: The run folder that keeps inferred contexts: a training that resumes has the same ones.

    Raises:
        ValueError: If an argument cannot be used, or the sampler needs contexts that are hidden.

    Attributes:
        inferred: What :func:`pfdl.contexts.find_contexts` found and why it is believed; None before :meth:`setup`, and
            where nothing is inferred.
    """

    def __init__(
        self,
        config: TrainingConfig,
        source: ContextSource,
        manifest: Manifest,
        *,
        num_workers: int = 0,
        cache: bool | None = None,
        describe: Callable[[Tensor], Tensor] | None = None,
        folder: Path | None = None,
    ) -> None:
        super().__init__()  # beside which Lightning's data module may stand
        check_count("num_workers", num_workers, 0)
        if config.sampler == "groups" and config.contexts == "hidden":
            raise ValueError("sampler is 'groups', which needs contexts; set contexts to 'known' or 'inferred'.")
        self.config = config
        self.source = source
        self.manifest = manifest
        self.num_workers = num_workers
        self.cache = cache
        self.describe = describe
        self.folder = folder
        self.inferred: InferredContexts | None = None
        self._sets: dict[str, ContextImages] = {}
        self._contexts: dict[str, Tensor] = {}
        self._draws: Tensor | None = None

    def setup(self, stage: str) -> None:
        """Read both sets and infer contexts if asked to, once; of several processes the first infers."""
        if self._sets:
            return
        config = self.config
        for name in (TRAIN, VALIDATION):
            if name in self.manifest.set_names:
                rows = self.manifest.rows_of(name)  # contexts may be known of the validation images alone
                images = ContextImages(
                    self.source,
                    self.manifest,
                    name,
                    size=config.image_size,
                    cache=self.cache,
                    reveal_contexts=config.contexts == "known" and any(row.context for row in rows),
                )
                self._sets[name], self._contexts[name] = images, images.contexts
        if config.contexts == "inferred":
            names = [name for name in self._sets if name == TRAIN or config.select == "worst-group"]
            sets = [self._sets[name] for name in names]
            self.inferred, draws = run_on_first(lambda: self._infer(sets))
            self._draws = None if draws is None else torch.tensor(draws)[: len(sets[0])]
            contexts = torch.tensor(self.inferred.contexts).long()
            self._contexts.update(zip(names, torch.split(contexts, [len(one) for one in sets]), strict=True))

    @property
    def train_set(self) -> ContextImages:
        """The training images, once :meth:`setup` has read them."""
        return self._sets[TRAIN]

    @property
    def train_contexts(self) -> Tensor:
        """What training knows of the context of each training image, shape (n,); −1 where it is hidden."""
        return self._contexts[TRAIN]

    def train_dataloader(self, *, with_indices: bool = False) -> EpochLoader:
        """Return batches of one size, in an order that the seed and the epoch decide.

        Args:
            with_indices: Whether batches end with the numbers of their images in the training set.
        """
        images = _Labelled(self.train_set, self.train_contexts, with_indices)
        labels, contexts = self.train_set.labels, self.train_contexts
        sampler = make_sampler(self.config, labels, contexts, self._draws, processes=world_size(), rank=rank())
        return EpochLoader(images, sampler=sampler, **self._settings())

    def val_dataloader(self) -> DataLoader[Any] | list[DataLoader[Any]]:
        """Return the validation set in order; nothing if the manifest holds none out."""
        if VALIDATION not in self._sets:
            return []
        images = _Labelled(self._sets[VALIDATION], self._contexts[VALIDATION])
        sampler: DistributedSampler[Any] | None = None
        if world_size() > 1:
            sampler = DistributedSampler(images, world_size(), rank(), shuffle=False)
        return DataLoader(images, sampler=sampler, generator=torch.Generator(), **self._settings())

    def _infer(self, sets: Sequence[ContextImages]) -> tuple[InferredContexts, list[float] | None]:
        """Infer the contexts of the images of some sets, in their order, unless the run folder has them.

        Returns:
            The contexts, and how often to draw each image, where the method has a rule for it.
        """
        paths = [path for images in sets for path in images.paths]
        if self.folder is not None and (kept := _read_contexts(self.folder, paths)):
            return kept
        labels = torch.cat([images.labels for images in sets])
        config, draws = self.config, None
        if config.infers_by_network:
            found = self._infer_by_network(sets, labels)
            draws = None if found.draws is None else found.draws.tolist()
        else:
            infer = find_contexts if config.confirm else partial(find_contexts, confirmation=0.0)
            images = ConcatDataset[Any](sets)
            found = infer(images, labels, method=config.infer_by, describe=self.describe, seed=config.seed)
        if self.folder is not None:
            write_json(self.folder / WHY_CONTEXTS, found.to_dict())
            columns = {"path": paths, "context": found.contexts.tolist(), **({} if draws is None else {"draws": draws})}
            write_atomically(self.folder / INFERRED_CONTEXTS, pd.DataFrame(columns).to_csv(index=False))
        return found, draws

    def _infer_by_network(self, sets: Sequence[ContextImages], labels: Tensor) -> InferredContexts:
        """Infer contexts from the logits of a network that was trained for a few epochs."""
        config = self.config
        if self.describe is None:
            raise ValueError(
                f"infer_by is {config.infer_by!r}, which needs the logits of a network trained before; "
                "pfdl.vision.train trains one, or give describe=... that returns them."
            )
        rows = [(one, part) for one in sets for part in torch.split(torch.arange(len(one)), BATCH)]
        logits = torch.cat([self.describe(one.batch(part)) for one, part in rows])
        settings = {"upweight": config.infer_upweight} if config.infer_by == "jtt" else {"seed": config.seed}
        return NETWORK_METHODS[config.infer_by](logits, labels, **settings)

    def _settings(self) -> dict[str, Any]:
        check_share(self.config.batch_size, world_size())
        return {
            "batch_size": self.config.batch_size // world_size(),
            "num_workers": self.num_workers,
            "persistent_workers": self.num_workers > 0,
            "pin_memory": torch.cuda.is_available(),
            "collate_fn": tuple,  # a _Labelled has put the batch together already
        }


def check_share(batch_size: int, processes: int) -> None:
    """Raise unless processes can share the images of a step evenly."""
    if batch_size % processes:
        raise ValueError(
            f"batch_size is {batch_size}, the images of a step over all {processes} processes; give a multiple of "
            f"{processes}."
        )


def _read_contexts(folder: Path, paths: Sequence[str]) -> tuple[InferredContexts, list[float] | None] | None:
    """Read what :meth:`TrainingData._infer` found, from a run folder; None if it has none, damage is set aside."""
    table = folder / INFERRED_CONTEXTS
    try:
        kept, why = read_table(table), read_json(folder / WHY_CONTEXTS)
        contexts, sentence = kept["context"].to_numpy(dtype="int64"), why["sentence"]
        draws = kept["draws"].to_numpy(dtype="float64") if "draws" in kept else None
        sound = draws is None or bool((draws > 0).all() and (draws < math.inf).all())
        if sound and kept["path"].tolist() == paths and contexts.min() >= 0 and isinstance(sentence, str):
            found = InferredContexts(contexts, str(why["method"]), sentence, ())
            return found, None if draws is None else draws.tolist()
        raise ValueError(f"{table} is not about the training images.")
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        set_aside(table, error, "contexts are inferred again")
        return None


class _Labelled(Dataset[tuple[Tensor, ...]]):
    """Batches of images with their labels and the contexts that training may know."""

    def __init__(self, images: ContextImages, contexts: Tensor, with_indices: bool = False) -> None:
        self.images, self.contexts, self.with_indices = images, contexts, with_indices

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        """Return the images, labels and contexts of a batch; PyTorch's loader asks for samples in this way."""
        rows = torch.tensor(indices)
        parts = self.images.batch(rows), self.images.labels[rows], self.contexts[rows]
        return (*parts, rows) if self.with_indices else parts
