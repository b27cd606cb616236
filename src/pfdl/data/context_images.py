"""Decoded images: a set of a manifest as a PyTorch dataset, and a whole source stored for many
processes to share.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, get_worker_info

from pfdl._internal.files import TEMPORARY, read_json, write_json
from pfdl._internal.threads import map_in_threads
from pfdl._internal.validation import check_count
from pfdl.data.manifest import Manifest, ManifestRow
from pfdl.data.sources import ContextSource, Sample

HIDDEN_CONTEXT = -1
"""The context label of every image of a set whose contexts are hidden."""

CACHE_LIMIT = 2 << 30
"""Sets of up to this many bytes are kept in memory unless told otherwise."""

INDEX = "index.json"
PIXELS = "pixels.npy"
"""The files of stored images: what they are, written last, and their pixels."""

MAX_INDEX = 1 << 31
"""Bytes of the index, some hundred for each image."""


class ContextImages(Dataset[tuple[Tensor, int, int]]):
    """Images of one set: (image, label, context), in the order of the paths.

    An image is a tensor of bytes, shape (3, size, size), or what else the source gives for it, such
    as its features. The label is a position in ``manifest.classes``, the context one in
    ``manifest.contexts``; but in the sets ``train`` and ``validation`` it is ``HIDDEN_CONTEXT``,
    because the protocol hides it from training.

    Args:
        source: Where the images come from.
        manifest: Which image is in which set.
        set_name: One of ``manifest.set_names``.
        size: Height and width: the shorter side is scaled to it and the middle cut out.
        cache: Whether to keep the decoded images in memory; by default up to ``CACHE_LIMIT``. With
            a cache every image is read right here, so a file that has gone bad since the split
            stops the run before it starts.
        reveal_contexts: Give the contexts in training too, for methods that need to know
            environments.

    Raises:
        ValueError: If there is no such set, or (with a cache) an image is missing or not the one of
            the manifest.

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
        self._source = source
        self._rows = manifest.rows_of(set_name)
        self._size = size
        self.labels, self.contexts = (
            torch.tensor(numbers) for numbers in manifest.numbers_of(set_name)
        )
        if not reveal_contexts and set_name in ("train", "validation"):
            self.contexts.fill_(HIDDEN_CONTEXT)
        self.paths = [row.path for row in self._rows]
        if cache is None:
            # Then a cache would only be a second copy
            is_decoded = getattr(source, "is_decoded", False)
            cache = not is_decoded and len(self._rows) * 3 * size**2 <= CACHE_LIMIT
        self._cache = self._load_all() if cache else None

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        image = self._load(index) if self._cache is None else self._cache[index]
        return image, int(self.labels[index]), int(self.contexts[index])

    def batch(self, indices: Tensor) -> Tensor:
        """Return the images of a batch, stacked: at once if they are in memory, else one by one."""
        if self._cache is not None:
            return self._cache.index_select(0, indices)
        if not self.decodes or get_worker_info() is not None:  # workers are several already
            return torch.stack([self._load(index) for index in indices.tolist()])
        rows = [self._rows[index] for index in indices.tolist()]
        return torch.stack(list(load_in_threads(self._source, rows, self._size)))

    @property
    def decodes(self) -> bool:
        """Return whether images are decoded whenever they are asked for, as of a set too large for
        memory.
        """
        return self._cache is None and not getattr(self._source, "is_decoded", False)

    @property
    def images(self) -> Tensor:
        """Return all images as bytes, shape (n, 3, size, size)."""
        return self._load_all() if self._cache is None else self._cache

    def _load(self, index: int) -> Tensor:
        row = self._rows[index]
        return self._source.load(row.path, self._size, row.sha256)

    def _load_all(self) -> Tensor:
        images: Tensor | None = None
        for index, image in enumerate(load_in_threads(self._source, self._rows, self._size)):
            if images is None:
                images = image.new_empty((len(self), *image.shape))
            images[index] = image
        assert images is not None, "a set of a manifest has images"
        return images


def load_in_threads(
    source: ContextSource, images: Sequence[ManifestRow | Sample], size: int
) -> Iterator[Tensor]:
    """Yield images in their order, decoded by several threads."""

    def load(image: ManifestRow | Sample) -> Tensor:
        return source.load(image.path, size, image.sha256)

    # Alone: a source that makes ready on first use must not do so in every thread
    yield load(images[0])
    yield from map_in_threads(load, images[1:], threads=8)


class StoredImages:
    """The images that :func:`store_images` left in a folder: a source like any other.

    Processes that open the same folder share the memory that its pixels take.

    Args:
        folder: The folder.
        array: The file in it that has the images, or what else was computed of each of them.

    Attributes:
        samples: As those of the source that was stored.
        description: As that of the source that was stored.
        size: Height and width of the images.
        is_decoded: Tells a dataset that a copy of the images in its own memory would gain nothing.
    """

    is_decoded = True

    def __init__(self, folder: Path, array: str = PIXELS) -> None:
        index = read_json(folder / INDEX, MAX_INDEX)
        self.samples: Sequence[Sample] = tuple(Sample(*sample) for sample in index["samples"])
        self.description: Mapping[str, Any] = index["description"]
        self.size: int = index["size"]
        self._place = {sample.path: row for row, sample in enumerate(self.samples)}
        self._pixels = np.load(folder / array, mmap_mode="r", allow_pickle=False)

    def load(self, path: str, size: int, sha256: str) -> Tensor:
        """Return one image as bytes of shape (3, size, size); ValueError unless stored with this
        hash and size.
        """
        row = self._place.get(path)
        if row is None or size != self.size or self.samples[row].sha256 != sha256:
            raise ValueError(
                f"{path!r} is not stored in the size {size} with the expected content."
            )
        return self.take([path])[0]

    def take(self, paths: Sequence[str]) -> Tensor:
        """Return images as bytes, shape (n, 3, size, size), in the order of the paths."""
        return torch.from_numpy(np.asarray(self._pixels[[self._place[path] for path in paths]]))


def store_images(
    source: ContextSource,
    folder: Path,
    size: int,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Decode all images of a source into a folder, unless it holds them already, and return it.

    What the folder holds of other images is replaced.
    """
    samples = source.samples
    index = json.loads(
        json.dumps(
            {
                "size": size,
                "description": dict(source.description),
                "samples": [list(sample) for sample in samples],
            }
        )
    )
    if _holds(folder, index):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INDEX).unlink(missing_ok=True)
    partial = folder / f"{TEMPORARY}{PIXELS}"
    shape = (len(samples), 3, size, size)
    try:
        # Not through a memory map: what a full disk does not take ends Python there
        with partial.open("wb") as stream:
            about = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, about)
            for row, image in enumerate(load_in_threads(source, samples, size)):
                stream.write(image.numpy().tobytes())
                on_progress(row + 1, len(samples))
        partial.replace(folder / PIXELS)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    write_json(folder / INDEX, index)  # last: with it both are complete
    return folder


def _holds(folder: Path, index: Mapping[str, Any]) -> bool:
    try:
        if read_json(folder / INDEX, MAX_INDEX) != index:
            return False
        pixels = np.load(folder / PIXELS, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        return False
    return bool(pixels.shape == (len(index["samples"]), 3, index["size"], index["size"]))
