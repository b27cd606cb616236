"""The images of a training: its sets, what it knows of their contexts, and its batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from pfdl._internal.files import read_frame, read_json
from pfdl._internal.processes import rank, run_on_first, world_size
from pfdl.contexts import InferredContexts, find_contexts
from pfdl.data.context_images import ContextImages
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource
from pfdl.runs import INFERRED_CONTEXTS, WHY_CONTEXTS, set_aside
from pfdl.vision.config import TrainingConfig
from pfdl.vision.inferring import keep_contexts
from pfdl.vision.loading import EpochLoader, EpochSampler, TensorBatches

TRAIN = "train"
VALIDATION = "validation"

CPU = torch.device("cpu")

LogitsOf = Callable[..., Tensor]

JUDGED = 512
"""Validation images that a GPU judges at a time, where they lie on it."""

GPU_LIMIT = 4 << 30
"""Bytes of images that may lie on a GPU while it trains; more of them stream from the CPU."""


class TrainingData:
    """The training and validation sets of a manifest; the validation set has the training set's
    distribution.

    Batches are (images as bytes, labels, contexts, indices), of several processes together the
    batches of one. No test image is read. With inferred contexts and the selection by worst group,
    contexts are inferred in the training and validation images together; otherwise the validation
    images play no part. Of several processes the first infers.

    Args:
        config: How to train: the size of images and batches, contexts, sampler and seed are taken
            from it.
        source: Where the images come from.
        manifest: Which image is in which set.
        num_workers: Processes that load images; 0 loads in the training process, which is fastest
            for a cached set.
        describe: With inferred contexts, from a batch of images as bytes, shape (n, 3, h, w), to
            features, shape (n, p); by default :func:`pfdl.image_statistics`. A pretrained network's
            features see more.
        logits_of: For a finder that reads logits, as JTT, SPARE and EIIL do: from sets of images
            to the logits of a first network, all in order; all processes call it together.
        folder: The run folder that keeps inferred contexts: a training that resumes has the same
            ones.

    Attributes:
        train_set: The training images; their contexts are what training knows of them, −1 where
            that is hidden.
        inferred: What :func:`pfdl.contexts.find_contexts` found and why it is believed; None if
            nothing is inferred.
    """

    def __init__(
        self,
        config: TrainingConfig,
        source: ContextSource,
        manifest: Manifest,
        *,
        num_workers: int = 0,
        describe: Callable[[Tensor], Tensor] | None = None,
        logits_of: LogitsOf | None = None,
        folder: Path | None = None,
    ) -> None:
        self.config = config
        self.num_workers = num_workers
        self.inferred: InferredContexts | None = None
        self._sets = {}
        for name in (TRAIN, VALIDATION):
            if name in manifest.set_names:
                # Contexts may be known of the validation images alone
                have_contexts = any(row.context for row in manifest.rows_of(name))
                self._sets[name] = ContextImages(
                    source,
                    manifest,
                    name,
                    size=config.image_size,
                    reveal_contexts=config.contexts == "known" and have_contexts,
                )
        self.train_set = self._sets[TRAIN]
        if config.contexts == "inferred":
            sets = [*self._sets.values()] if config.select == "worst-group" else [self.train_set]
            kept = run_on_first(lambda: _read_contexts(folder, sets))
            self.inferred = kept or _infer(config, sets, describe, logits_of, folder)
            contexts = torch.tensor(self.inferred.contexts).long()
            sizes = [len(images) for images in sets]
            for images, part in zip(sets, torch.split(contexts, sizes), strict=True):
                images.contexts = part

    def lies_on(self, device: torch.device) -> bool:
        """Return whether the images lie on the device as bytes while one process trains: a GPU that
        has room for them.
        """
        if device.type != "cuda" or world_size() > 1:
            return False
        images = sum(len(images) for images in self._sets.values())
        needed = images * 3 * self.config.image_size**2
        free, _ = torch.cuda.mem_get_info(device)
        return needed <= min(GPU_LIMIT, free // 4)

    def train_loader(self, device: torch.device = CPU) -> EpochLoader | TensorBatches:
        """Return batches of one size, in an order that the seed and the epoch decide."""
        labels = self.train_set.labels
        contexts = self.train_set.contexts
        draws = None
        if self.inferred is not None and self.inferred.draws is not None:
            draws = torch.tensor(self.inferred.draws)[: len(labels)]
        sampler = EpochSampler(
            self.config, labels, contexts, draws, processes=world_size(), rank=rank()
        )
        if self.lies_on(device):
            parts = _parts_of(self.train_set, device)
            return TensorBatches(parts, self.config.batch_size, sampler)
        return EpochLoader(
            _Labelled(self.train_set),
            sampler=sampler,
            reads_ahead=self.train_set.decodes and self.num_workers == 0,
            **self._settings(),
        )

    def validation_loader(self, device: torch.device = CPU) -> DataLoader[Any] | None:
        """Return the validation set in order, to each process its part; None if the manifest holds
        none out.
        """
        if VALIDATION not in self._sets:
            return None
        if self.lies_on(device):
            on_device = _OnDevice(_parts_of(self._sets[VALIDATION], device))
            return DataLoader(on_device, JUDGED, generator=torch.Generator(), collate_fn=tuple)
        images = _Labelled(self._sets[VALIDATION])
        sampler: DistributedSampler[Any] = DistributedSampler(
            images, world_size(), rank(), shuffle=False
        )
        return DataLoader(images, sampler=sampler, generator=torch.Generator(), **self._settings())

    def _settings(self) -> dict[str, Any]:
        return {
            "batch_size": self.config.batch_size // world_size(),
            "num_workers": self.num_workers,
            "persistent_workers": self.num_workers > 0,
            "pin_memory": torch.cuda.is_available(),
            "collate_fn": tuple,  # a _Labelled has put the batch together already
        }


def _infer(
    config: TrainingConfig,
    sets: Sequence[ContextImages],
    describe: Callable[[Tensor], Tensor] | None,
    logits_of: LogitsOf | None,
    folder: Path | None,
) -> InferredContexts:
    """Infer the contexts of the images of some sets, in their order, and keep them in the run
    folder; all must call.
    """
    labels = torch.cat([images.labels for images in sets])
    logits = None if logits_of is None else logits_of(sets=sets)

    def work() -> InferredContexts:
        settings = dict(config.infer_settings)
        if not config.confirm:
            settings["confirmation"] = 0.0
        inferred = find_contexts(
            ConcatDataset[Any](sets) if logits is None else logits,
            labels,
            method=config.infer_by,
            describe=describe,
            seed=config.seed,
            **settings,
        )
        if folder is not None:
            keep_contexts(folder, _paths(sets), inferred)
        return inferred

    return run_on_first(work)


def _paths(sets: Sequence[ContextImages]) -> list[str]:
    return list(chain.from_iterable(images.paths for images in sets))


def _read_contexts(folder: Path | None, sets: Sequence[ContextImages]) -> InferredContexts | None:
    """Read what :func:`_infer` found, from a run folder; None if it has none, damage is set
    aside.
    """
    if folder is None:
        return None
    table = folder / INFERRED_CONTEXTS
    try:
        # To the letter
        kept = read_frame(table, dtype={"path": str, "draws": str}, keep_default_na=False)
        why = read_json(folder / WHY_CONTEXTS)
        inferred = InferredContexts(
            kept["context"].to_numpy(dtype="int64"),
            str(why["method"]),
            why["sentence"],
            draws=kept["draws"].to_numpy(dtype="float64") if "draws" in kept else None,
        )
        if kept["path"].tolist() != _paths(sets) or not _is_sound(inferred):
            raise ValueError(f"{table} is not about the training images.")
        return inferred
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        set_aside(table, error, "contexts are inferred again")
        return None


def _is_sound(inferred: InferredContexts) -> bool:
    """Return whether contexts, draws and sentence that were read are possible ones."""
    if inferred.contexts.min() < 0 or not isinstance(inferred.sentence, str):
        return False
    return inferred.draws is None or bool(
        (inferred.draws > 0).all() and (inferred.draws < math.inf).all()
    )


def _parts_of(images: ContextImages, device: torch.device) -> list[Tensor]:
    """Return images as bytes, labels, contexts and indices on a device."""
    parts = (images.images, images.labels, images.contexts, torch.arange(len(images)))
    return [part.to(device) for part in parts]


class _OnDevice(Dataset[tuple[Tensor, ...]]):
    """Batches of samples that lie on a device."""

    def __init__(self, parts: Sequence[Tensor]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        rows = torch.tensor(indices).to(self.parts[0].device)
        return tuple(part[rows] for part in self.parts)


class _Labelled(Dataset[tuple[Tensor, ...]]):
    """Batches of images with their labels, contexts and indices; PyTorch's loader asks for them by
    ``__getitems__``.
    """

    def __init__(self, images: ContextImages) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        rows = torch.tensor(indices)
        return self.images.batch(rows), self.images.labels[rows], self.images.contexts[rows], rows
