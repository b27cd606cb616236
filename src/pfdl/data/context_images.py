"""A set of a manifest as a PyTorch dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor
from torch.utils.data import Dataset

from pfdl._internal.validation import check_count
from pfdl.data.manifest import Manifest, ManifestRow
from pfdl.data.sources import ContextSource, Sample

HIDDEN_CONTEXT = -1
"""The context label of every image of a set whose contexts are hidden."""

CACHE_LIMIT = 2 << 30
"""Sets of up to this many bytes are kept in memory unless told otherwise."""


class ContextImages(Dataset[tuple[Tensor, int, int]]):
    """Images of one set: (image, label, context), in the order of the paths.

    An image is a tensor of bytes, shape (3, size, size). The label is a position in ``manifest.classes``, the context
    one in ``manifest.contexts``; but in the sets ``train`` and ``validation`` it is ``HIDDEN_CONTEXT``, because the
    protocol hides it from training.

    Args:
        source: Where the images come from.
        manifest: Which image is in which set.
        set_name: One of ``manifest.set_names``.
        size: Height and width: the shorter side is scaled to it and the middle cut out.
        cache: Whether to keep the decoded images in memory; by default up to ``CACHE_LIMIT``. With a cache every image
            is read right here, so a file that has gone bad since the split stops the run before it starts.
        reveal_contexts: Give the contexts in training too, for methods that need to know environments.

    Raises:
        ValueError: If there is no such set, or (with a cache) an image is missing or not the one of the manifest.

    Attributes:
        labels: Shape (n,).
        contexts: Shape (n,).
        paths: Paths of the images, in their order.
    """

    def __init__(
        self,
        source: ContextSource,
        manifest: Manifest,
        set_name: str,
        *,
        size: int = 64,
        cache: bool | None = None,
        reveal_contexts: bool = False,
    ) -> None:
        check_count("size", size, 1)
        self._source, self._rows, self._size = source, manifest.rows_of(set_name), size
        self.labels, self.contexts = (torch.tensor(numbers) for numbers in manifest.numbers_of(set_name))
        if not reveal_contexts and set_name in ("train", "validation"):
            self.contexts.fill_(HIDDEN_CONTEXT)
        self.paths = [row.path for row in self._rows]
        if cache is None:
            is_decoded = getattr(source, "is_decoded", False)  # then a cache would only be a second copy
            cache = not is_decoded and len(self._rows) * 3 * size**2 <= CACHE_LIMIT
        self._cache = self._load_all() if cache else None

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        image = self._load(index) if self._cache is None else self._cache[index]
        return image, int(self.labels[index]), int(self.contexts[index])

    def batch(self, indices: Tensor) -> Tensor:
        """Return the images of a batch, stacked: at once if they are in memory, else one by one."""
        if self._cache is None:
            return torch.stack([self._load(index) for index in indices.tolist()])
        return self._cache.index_select(0, indices)

    @property
    def images(self) -> Tensor:
        """Return all images as bytes, shape (n, 3, size, size)."""
        return self._load_all() if self._cache is None else self._cache

    def _load(self, index: int) -> Tensor:
        row = self._rows[index]
        return self._source.load(row.path, self._size, row.sha256)

    def _load_all(self) -> Tensor:
        images = torch.empty((len(self), 3, self._size, self._size), dtype=torch.uint8)
        for index, image in enumerate(load_in_threads(self._source, self._rows, self._size)):
            images[index] = image
        return images


def load_in_threads(source: ContextSource, images: Sequence[ManifestRow | Sample], size: int) -> Iterator[Tensor]:
    """Yield images in their order, decoded by several threads."""

    def load(image: ManifestRow | Sample) -> Tensor:
        return source.load(image.path, size, image.sha256)

    yield load(images[0])  # alone: a source that makes ready on first use must not do so in every thread
    with ThreadPoolExecutor(8) as pool:
        yield from pool.map(load, images[1:])
