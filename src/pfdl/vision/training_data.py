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

from pfdl._internal.files import read_frame, read_json, write_atomically, write_json
from pfdl._internal.processes import rank, run_on_first, world_size
from pfdl.contexts import InferredContexts, find_contexts
from pfdl.contexts.network import NETWORK_METHODS
from pfdl.data.context_images import ContextImages
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource
from pfdl.runs import INFERRED_CONTEXTS, WHY_CONTEXTS, set_aside
from pfdl.vision.config import TrainingConfig
from pfdl.vision.features import BATCH
from pfdl.vision.loading import EpochLoader, EpochSampler

TRAIN, VALIDATION = "train", "validation"


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
            features see more. For JTT, SPARE and EIIL to the logits of a first network, which all
            processes ask for together.
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
        folder: Path | None = None,
    ) -> None:
        self.config, self.num_workers = config, num_workers
        self.inferred: InferredContexts | None = None
        self._sets = {
            name: ContextImages(
                source,
                manifest,
                name,
                size=config.image_size,  # contexts may be known of the validation images alone
                reveal_contexts=config.contexts == "known"
                and any(row.context for row in manifest.rows_of(name)),
            )
            for name in (TRAIN, VALIDATION)
            if name in manifest.set_names
        }
        self.train_set = self._sets[TRAIN]
        if config.contexts == "inferred":
            sets = [*self._sets.values()] if config.select == "worst-group" else [self.train_set]
            kept = run_on_first(lambda: _read_contexts(folder, sets))
            self.inferred = kept or _infer(config, sets, describe, folder)
            contexts = torch.tensor(self.inferred.contexts).long()
            for images, part in zip(
                sets, torch.split(contexts, [len(one) for one in sets]), strict=True
            ):
                images.contexts = part

    def train_loader(self) -> EpochLoader:
        """Return batches of one size, in an order that the seed and the epoch decide."""
        labels, contexts = self.train_set.labels, self.train_set.contexts
        draws = None
        if self.inferred is not None and self.inferred.draws is not None:
            draws = torch.tensor(self.inferred.draws)[: len(labels)]
        sampler = EpochSampler(
            self.config, labels, contexts, draws, processes=world_size(), rank=rank()
        )
        return EpochLoader(_Labelled(self.train_set), sampler=sampler, **self._settings())

    def validation_loader(self) -> DataLoader[Any] | None:
        """Return the validation set in order, to each process its part; None if the manifest holds
        none out.
        """
        if VALIDATION not in self._sets:
            return None
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
    folder: Path | None,
) -> InferredContexts:
    """Infer the contexts of the images of some sets, in their order, and keep them in the run
    folder; all must call.
    """
    labels = torch.cat([images.labels for images in sets])
    logits = None
    if config.first_network is not None:
        if describe is None:
            raise ValueError(
                f"infer_by is {config.infer_by!r}; describe=... must give the logits of a first"
                " network."
            )
        rows = [
            (images, part)
            for images in sets
            for part in torch.split(torch.arange(len(images)), BATCH)
        ]
        logits = torch.cat([describe(images.batch(part)) for images, part in rows])

    def work() -> InferredContexts:
        if logits is not None:
            settings = (
                {"upweight": config.infer_upweight}
                if config.infer_by == "jtt"
                else {"seed": config.seed}
            )
            found = NETWORK_METHODS[config.infer_by](logits, labels, **settings)
        else:
            infer = find_contexts if config.confirm else partial(find_contexts, confirmation=0.0)
            images = ConcatDataset[Any](sets)
            found = infer(
                images, labels, method=config.infer_by, describe=describe, seed=config.seed
            )
        if folder is not None:
            columns = {"path": _paths(sets), "context": found.contexts}
            columns |= {} if found.draws is None else {"draws": found.draws}
            write_json(folder / WHY_CONTEXTS, found.to_dict())
            write_atomically(folder / INFERRED_CONTEXTS, pd.DataFrame(columns).to_csv(index=False))
        return found

    return run_on_first(work)


def _paths(sets: Sequence[ContextImages]) -> list[str]:
    return [path for images in sets for path in images.paths]


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
        contexts, sentence = kept["context"].to_numpy(dtype="int64"), why["sentence"]
        draws = kept["draws"].to_numpy(dtype="float64") if "draws" in kept else None
        is_sound = draws is None or bool((draws > 0).all() and (draws < math.inf).all())
        if (
            is_sound
            and kept["path"].tolist() == _paths(sets)
            and contexts.min() >= 0
            and isinstance(sentence, str)
        ):
            return InferredContexts(contexts, str(why["method"]), sentence, (), draws)
        raise ValueError(f"{table} is not about the training images.")
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        set_aside(table, error, "contexts are inferred again")
        return None


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
