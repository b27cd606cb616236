"""Decode the images of a data set once, for all trainings of a grid to share by memory map."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pfdl._internal.files import TEMPORARY, read_json, write_json
from pfdl.data.context_images import load_in_threads
from pfdl.data.sources import ContextSource, Sample

INDEX, PIXELS = "index.json", "pixels.npy"
MAX_INDEX = 1 << 31
"""Bytes of the index, some hundred for each image."""


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
        """Return one image as bytes of shape (3, size, size); ValueError unless stored with this hash and size."""
        row = self._place.get(path)
        if row is None or size != self.size or self.samples[row].sha256 != sha256:
            raise ValueError(f"{path!r} is not stored in the size {size} with the expected content.")
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
        json.dumps({"size": size, "description": dict(source.description), "samples": [list(one) for one in samples]})
    )
    if _holds(folder, index):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INDEX).unlink(missing_ok=True)
    partial = folder / f"{TEMPORARY}{PIXELS}"
    pixels = np.lib.format.open_memmap(partial, mode="w+", dtype=np.uint8, shape=(len(samples), 3, size, size))
    for row, image in enumerate(load_in_threads(source, samples, size)):
        pixels[row] = image.numpy()
        on_progress(row + 1, len(samples))
    pixels.flush()
    partial.replace(folder / PIXELS)
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
