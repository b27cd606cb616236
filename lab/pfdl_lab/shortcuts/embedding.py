"""Embed the photographs of the sets, once, with a cue put on or not."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from pfdl_lab.images.networks import embed
from pfdl_lab.shortcuts.pools import CHANGES, INDOORS, OUTDOORS, SCENES, SETS, SIZE

BATCH = 32

PLACES = INDOORS + OUTDOORS

FOLDERS: dict[str, list[tuple[str, tuple[str, ...], tuple[str, ...], int]]] = {
    "pacs": [
        (
            "pacs",
            ("dog", "elephant", "giraffe", "horse"),
            ("cartoon", "art_painting", "photo"),
            230,
        )
    ],
    "people": [("pacs", ("person", "house"), ("photo", "art_painting"), 200)],
    "objects": [("pacs", ("guitar", "house"), ("photo", "cartoon"), 300)],
    "scenes": [("petscapes", ("dog_bull", "dog_hound"), PLACES, 100)],
    "scenes2": [("petscapes", ("dog_mountain", "dog_prickear"), PLACES, 100)],
    "cats": [("petscapes", ("cat_solid", "cat_tabby"), PLACES, 50)],
    "crops": [("crops", ("nightshades", "roses"), ("laboratory", "field"), 450)],
    "animals": [("animals", ("cat", "dog"), ("photo",), 500)],
    "pets": [
        ("animals", ("cat", "dog"), ("photo",), 500),
        ("petscapes", ("cat_pointed", "dog_shaggy"), SCENES, 33),
    ],
}
"""Of each pool the data sets, classes, contexts, and the most images of a class in a context."""


def embed_pool(name: str, data: Path, cache: Path) -> None:
    """Embed the images of a set into ``cache``, as far as they are not there.

    Args:
        name: A set, see :func:`pfdl_lab.shortcuts.pools.load_pool`.
        data: The folder with pacs/, petscapes/, leaves/, crops/ and animals/, as far as used.
        cache: Where the features go.

    Raises:
        FileNotFoundError: If there are no such images.
    """
    base, _, change = name.partition("_")
    base = SETS.get(base, {}).get("folder", base if base in FOLDERS else "pacs")
    cache.mkdir(parents=True, exist_ok=True)
    for target, cue in ((base, ""), (name, change)):
        file = cache / f"{target}.npz"
        if file.exists() or (cue and cue not in CHANGES):
            continue
        paths, columns = _images_of(base, data)
        if not paths:
            raise FileNotFoundError(f"there are no images of {base} in {data}.")
        features = embed(_batches(data, paths, cue), "cpu").numpy()
        arrays: dict[str, Any] = {"features": features.astype(np.float16), **columns}
        np.savez(file, names=np.array(paths), **arrays)
        if not change:
            return


def _images_of(base: str, data: Path) -> tuple[list[str], dict[str, NDArray[Any]]]:
    """Return the paths of a pool's images, and of the leaves labels and contexts, too."""
    if base == "leaves":
        tables = [pd.read_csv(file) for file in sorted(data.glob("leaves/*_true.csv"))]
        if not tables:
            return [], {}
        table = pd.concat(tables).drop_duplicates("path").sort_values("path")
        columns: dict[str, NDArray[Any]] = {
            "labels": (table["label"] == "sick").to_numpy(dtype=np.intp),
            "contexts": (table["context"] == "field").to_numpy(dtype=np.intp),
        }
        return [f"leaves/{path}" for path in table["path"]], columns
    paths: list[str] = []
    for folder, classes, contexts, most in FOLDERS[base]:
        for class_name, context in itertools.product(classes, contexts):
            found = sorted((data / folder / class_name / context).glob("*.jpg"))
            order = np.random.default_rng(5).permutation(len(found))[:most]
            paths += [found[number].relative_to(data).as_posix() for number in sorted(order)]
    return paths, {}


def _batches(data: Path, paths: list[str], change: str) -> Iterator[Tensor]:
    """Yield images as bytes, cut to a square, with a cue put on."""
    rng = np.random.default_rng((11, zlib.crc32(change.encode())))
    for first in range(0, len(paths), BATCH):
        images = []
        for path in paths[first : first + BATCH]:
            with Image.open(data / path) as file:
                image = _square(file.convert("RGB"))
            if change:
                image = CHANGES[change](image, rng)
            images.append(np.asarray(image))
        yield torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)


def _square(image: Image.Image) -> Image.Image:
    width, height = image.size
    side = min(width, height)
    left = (width - side) // 2
    top = (height - side) // 2
    return image.crop((left, top, left + side, top + side)).resize(
        (SIZE, SIZE), Image.Resampling.BILINEAR
    )
