"""Features and labels, block by block: of arrays, tensors, datasets and loaders, never all in memory at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from pfdl.contexts._arrays import FloatArray, IndexArray, as_array, as_numbers
from pfdl.contexts.statistics import ImageStatistics

BLOCK = 4096
Describe = Callable[[Tensor], Tensor]


class ArrayFeatures:
    """Features that are an array or a tensor; its blocks are views, converted one at a time."""

    def __init__(self, features: Any, labels: Any) -> None:
        if labels is None:
            raise TypeError("labels are missing; give the class of each row of features.")
        sparse = isinstance(features, Tensor) and features.layout is not torch.strided
        self._features = features if isinstance(features, Tensor) and not sparse else as_array(features)
        if self._features.ndim != 2:
            raise ValueError(
                f"features have shape {tuple(self._features.shape)}; give (n, p), or images of shape (n, channels, "
                "height, width)."
            )
        self.labels = _checked_labels(labels, len(self._features))

    def __len__(self) -> int:
        return len(self.labels)

    def blocks(self) -> Iterator[FloatArray]:
        """Yield the features of all samples in order."""
        for start in range(0, len(self), BLOCK):
            yield _block(self._features[start : start + BLOCK], start)

    def take(self, rows: IndexArray) -> FloatArray:
        """Return the features of some samples, shape (rows, p)."""
        parts = [
            _block(self._features[some], int(some[0])) for some in np.array_split(rows, max(1, len(rows) // BLOCK))
        ]
        return np.concatenate(parts)


class DatasetFeatures:
    """Images or features that a dataset or a loader gives.

    Args:
        data: A dataset of (input, label, …), or a ``DataLoader`` of batches of these.
        labels: The classes, if the dataset does not give them.
        describe: From a batch of images to features, shape (n, p); by default the statistics of random filters.
        seed: Seed of these filters.
    """

    def __init__(self, data: Any, labels: Any, describe: Describe | None, seed: int) -> None:
        self._loader = data if isinstance(data, DataLoader) else DataLoader(data, batch_size=256)
        dataset: Any = self._loader.dataset
        self._dataset = dataset
        self._streams = isinstance(self._dataset, IterableDataset)
        given = labels if labels is not None else _stored_labels(self._dataset)
        if given is None:
            given = np.concatenate([as_array(batch[1]) for batch in self._batches(None)] or [np.zeros(0)])
        self.labels = _checked_labels(given, len(given) if self._streams else len(self._dataset))
        self._describe = describe
        self._seed = seed

    def __len__(self) -> int:
        return len(self.labels)

    def blocks(self) -> Iterator[FloatArray]:
        """Yield the features of all samples in order."""
        yield from self._described(None)

    def take(self, rows: IndexArray) -> FloatArray:
        """Return the features of some samples, shape (rows, p)."""
        if not self._streams:
            return np.concatenate(list(self._described(rows)))
        parts, start = [], 0
        for block in self._described(None):
            inside = rows[(rows >= start) & (rows < start + len(block))] - start
            parts.append(block[inside])
            start += len(block)
        return np.concatenate(parts)

    def _described(self, rows: IndexArray | None) -> Iterator[FloatArray]:
        start = 0
        for batch in self._batches(rows):
            inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
            inputs = torch.as_tensor(inputs)
            if inputs.dim() == 4:
                if self._describe is None:
                    self._describe = ImageStatistics.fit(self._some_images(), seed=self._seed)
                with torch.no_grad():
                    inputs = self._describe(inputs)
            if inputs.dim() != 2:
                raise ValueError(
                    f"a batch of the dataset has shape {tuple(inputs.shape)}; give images, (n, channels, height, "
                    "width), or features, (n, p)."
                )
            yield _block(inputs, start)
            start += len(inputs)

    def _some_images(self) -> Iterator[Tensor]:
        """Yield images from all over the dataset, to scale channels by; the first ones may be all of one kind."""
        some = np.unique(np.linspace(0, len(self) - 1, min(len(self), 2048)).astype(np.intp))
        for number, batch in enumerate(self._batches(None if self._streams else some)):
            if number * 256 >= 2048:
                break
            yield torch.as_tensor(batch[0] if isinstance(batch, (tuple, list)) else batch)

    def _batches(self, rows: IndexArray | None) -> Iterator[Any]:
        """Yield batches in the order of the dataset, whatever order the loader has."""
        dataset: Dataset[Any] = self._dataset if rows is None else Subset(self._dataset, rows.tolist())
        yield from DataLoader(
            dataset,
            batch_size=self._loader.batch_size or 256,
            num_workers=self._loader.num_workers,
            collate_fn=self._loader.collate_fn,
            generator=torch.Generator(),  # its own, so that nothing is drawn from the chance of training
        )


Features: TypeAlias = ArrayFeatures | DatasetFeatures


def open_features(data: Any, labels: Any, describe: Describe | None, seed: int) -> Features:
    """Return what a user passed in as a source of features and labels."""
    if isinstance(data, (DataLoader, Dataset)):
        return DatasetFeatures(data, labels, describe, seed)
    if isinstance(data, (Tensor, list, tuple)) or hasattr(data, "__array__") or hasattr(data, "toarray"):
        array = data if isinstance(data, Tensor) else as_array(data)
        if array.ndim == 4:
            if labels is None:
                raise TypeError("labels are missing; give the class of each image.")
            return DatasetFeatures(TensorDataset(torch.as_tensor(array)), labels, describe, seed)
        return ArrayFeatures(array, labels)
    raise TypeError(
        f"features are a {type(data).__name__}; give an array or a tensor of features (n, p) or images (n, channels, "
        "height, width), a torch Dataset or a DataLoader."
    )


def _stored_labels(dataset: Any) -> Any:
    """Return the labels that a dataset keeps, as torchvision's and this package's do, or None."""
    for name in ("labels", "targets"):
        kept = getattr(dataset, name, None)
        if isinstance(kept, (Tensor, np.ndarray, list)) and len(kept) == len(dataset):
            return kept
    return None


def _checked_labels(labels: Any, samples: int) -> IndexArray:
    y = as_numbers("labels", labels)
    if len(y) != samples:
        raise ValueError(f"there are {samples} samples and {len(y)} labels; give one label per sample.")
    return y.astype(np.intp)


def _block(features: Any, start: int) -> FloatArray:
    block: NDArray[Any] = as_array(features)
    if block.dtype.kind not in "biuf":
        raise TypeError(f"features have dtype {block.dtype}; give numbers.")
    block = block.astype(np.float64)
    finite = np.isfinite(block)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise ValueError(
            f"features are not finite: row {start + row}, column {column} is {block[row, column]}; give numbers only."
        )
    return block
