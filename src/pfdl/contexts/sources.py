"""Features and labels, block by block: of arrays, tensors, datasets and loaders, never all in
memory at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from pfdl.contexts._arrays import FloatArray, IndexArray, as_array, as_numbers
from pfdl.contexts.positions import position_colours
from pfdl.contexts.statistics import ImageStatistics

BLOCK = 4096

SCALED_BY = 2048
"""Channels of images are scaled by their mean and deviation in so many."""

Describe = Callable[[Tensor], Tensor]

FEATURES = "features"
STATISTICS = "statistics"
POSITIONS = "positions"
DESCRIBED = {
    FEATURES: "the features",
    STATISTICS: "colours and textures of the images",
    POSITIONS: "the colours of places in the images",
}
"""The descriptions of images, in the order in which they are tried, in words."""


class Features(ABC):
    """Features that are read block by block, and the class of each sample.

    Args:
        labels: The classes, shape (n,), of any kind.
        samples: How many there must be.

    Attributes:
        labels: The classes, numbered from 0, shape (n,).
        name: What the features are, a key of ``DESCRIBED``.
    """

    name = FEATURES

    def __init__(self, labels: Any, samples: int) -> None:
        self.labels: IndexArray = as_numbers("labels", labels).astype(np.intp)
        if len(self.labels) != samples:
            raise ValueError(
                f"there are {samples} samples and {len(self.labels)} labels; give one label per"
                " sample."
            )

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def _read(self, rows: IndexArray) -> Iterator[Any]:
        """Yield the features of some samples, in this order, as blocks of shape (rows, p)."""

    def blocks(self, rows: IndexArray | None = None) -> Iterator[FloatArray]:
        """Yield the features of some samples, or of all of them, in order."""
        rows = np.arange(len(self)) if rows is None else rows
        start = 0
        for features in self._read(rows):
            block: NDArray[Any] = as_array(features)
            if block.dtype.kind not in "biuf":
                raise TypeError(f"features have dtype {block.dtype}; give numbers.")
            block = block.astype(np.float64)
            finite = np.isfinite(block)
            if not finite.all():
                row, column = np.argwhere(~finite)[0]
                raise ValueError(
                    f"features are not finite: row {rows[start + row]}, column {column} is"
                    f" {block[row, column]}; give numbers only."
                )
            yield block
            start += len(block)

    def take(self, rows: IndexArray) -> FloatArray:
        """Return the features of some samples, shape (rows, p)."""
        return np.concatenate(list(self.blocks(rows)))


class ArrayFeatures(Features):
    """Features that are an array or a tensor, shape (n, p)."""

    def __init__(self, features: Any, labels: Any) -> None:
        sparse = isinstance(features, Tensor) and features.layout is not torch.strided
        self._features = (
            features if isinstance(features, Tensor) and not sparse else as_array(features)
        )
        if self._features.ndim != 2:
            raise ValueError(
                f"features have shape {tuple(self._features.shape)}; give (n, p), or images of"
                " shape (n, channels, height, width)."
            )
        super().__init__(labels, len(self._features))

    def _read(self, rows: IndexArray) -> Iterator[Any]:
        for some in np.array_split(rows, max(1, len(rows) // BLOCK)):
            yield self._features[some]


class DatasetFeatures(Features):
    """Images or features that a dataset or a loader gives.

    Args:
        data: A dataset of (input, label, …), or a ``DataLoader`` of batches of these.
        labels: The classes, if the dataset does not give them.
        describe: From a batch of images to features, shape (n, p); by default the statistics of
            random filters.
        seed: Seed of these filters.
    """

    def __init__(self, data: Any, labels: Any, describe: Describe | None, seed: int) -> None:
        self._loader = data if isinstance(data, DataLoader) else DataLoader(data, batch_size=256)
        dataset: Any = self._loader.dataset
        if isinstance(dataset, IterableDataset):
            raise TypeError(
                "the dataset is a stream, of which no sample can be drawn; give one with numbered"
                " samples."
            )
        if labels is None:
            labels = _stored_labels(dataset)
        if labels is None:
            every = np.arange(len(dataset))
            labels = np.concatenate(
                [as_array(batch[1]) for batch in self._batches(every)] or [np.zeros(0)]
            )
        super().__init__(labels, len(dataset))
        self._describe = describe
        self._seed = seed

    def descriptions(self) -> list[Features]:
        """Return the images by statistics and by positions; nothing if these are no images."""
        if not len(self) or next(self._inputs(np.arange(1))).dim() != 4:
            return []
        statistics = DatasetFeatures(self._loader, self.labels, None, self._seed)
        positions = DatasetFeatures(self._loader, self.labels, position_colours, self._seed)
        statistics.name = STATISTICS
        positions.name = POSITIONS
        return [statistics, positions]

    @property
    def described_by(self) -> Describe | None:
        """Return what describes images: as given, or as it was fitted when they were first read."""
        return self._describe

    def _read(self, rows: IndexArray) -> Iterator[Any]:
        for inputs in self._inputs(rows):
            if inputs.dim() == 4:
                if (
                    self._describe is None
                ):  # scaled by images from all over the dataset: the first may be of one kind
                    some = np.unique(
                        np.linspace(0, len(self) - 1, min(len(self), SCALED_BY)).astype(np.intp)
                    )
                    self._describe = ImageStatistics.fit(self._inputs(some), seed=self._seed)
                with torch.no_grad():
                    inputs = self._describe(inputs)
            if inputs.dim() != 2:
                raise ValueError(
                    f"a batch of the dataset has shape {tuple(inputs.shape)}; give images, (n,"
                    " channels, height, width), or features, (n, p)."
                )
            yield inputs

    def _inputs(self, rows: IndexArray) -> Iterator[Tensor]:
        for batch in self._batches(rows):
            yield torch.as_tensor(batch[0] if isinstance(batch, (tuple, list)) else batch)

    def _batches(self, rows: IndexArray) -> Iterator[Any]:
        """Yield batches in the order of the dataset, whatever order the loader has."""
        yield from DataLoader(
            Subset(self._loader.dataset, rows.tolist()),
            batch_size=self._loader.batch_size or 256,
            num_workers=self._loader.num_workers,
            collate_fn=self._loader.collate_fn,
            # its own, so that nothing is drawn from the chance of training
            generator=torch.Generator(),
        )


def open_descriptions(
    data: Any, labels: Any, describe: Describe | None, images: Any, seed: int
) -> list[Features]:
    """Return what a user passed in as sources of features and labels: one for each description, in
    the order in which they are tried.
    """
    first = open_features(data, labels, describe, seed)
    if isinstance(first, ArrayFeatures):
        if images is None:
            return [first]
        pictures = open_features(images, first.labels, None, seed)
        if not isinstance(pictures, DatasetFeatures) or len(pictures) != len(first):
            raise ValueError(
                f"there are {len(first)} samples of features; images must be as many, of shape (n,"
                " channels, height, width)."
            )
        return [first, *pictures.descriptions()]
    if describe is not None:
        return [first, *first.descriptions()]
    return first.descriptions() or [first]


def open_features(
    data: Any, labels: Any, describe: Describe | None, seed: int
) -> ArrayFeatures | DatasetFeatures:
    """Return what a user passed in as a source of features and labels."""
    if isinstance(data, (DataLoader, Dataset)):
        return DatasetFeatures(data, labels, describe, seed)
    if (
        isinstance(data, (Tensor, list, tuple))
        or hasattr(data, "__array__")
        or hasattr(data, "toarray")
    ):
        array = data if isinstance(data, Tensor) else as_array(data)
        if labels is None:
            raise TypeError("labels are missing; give the class of each sample.")
        if array.ndim == 4:
            return DatasetFeatures(TensorDataset(torch.as_tensor(array)), labels, describe, seed)
        return ArrayFeatures(array, labels)
    raise TypeError(
        f"features are a {type(data).__name__}; give an array or a tensor of features (n, p) or"
        " images (n, channels, height, width), a torch Dataset or a DataLoader."
    )


def description_of(name: str, describe: Describe | None) -> Describe | None:
    """Return what describes images so that contexts show that were found by a description.

    Args:
        name: A key of ``DESCRIBED``.
        describe: What gives the features of the first description.
    """
    return {STATISTICS: None, POSITIONS: position_colours}.get(name, describe)


def _stored_labels(dataset: Any) -> Any:
    """Return the labels that a dataset keeps, as torchvision's and this package's do, or None."""
    if getattr(dataset, "target_transform", None) is not None:
        return None  # what it keeps is not what it gives
    for name in ("labels", "targets"):
        kept = getattr(dataset, name, None)
        if isinstance(kept, (Tensor, np.ndarray, list)) and len(kept) == len(dataset):
            return kept
    return None
