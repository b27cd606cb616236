"""Pools of photographs, as they are or with a cue put on, and draws of them with a shortcut."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance

SIZE = 96
RATIO = 10
"""In training a class has so many times as many images in its usual context as in the other."""

INDOORS = ("altar", "barn", "candy_store", "dining_table")
OUTDOORS = ("alp", "cliff_dwelling", "coral_reef", "seashore")
SCENES = (*INDOORS, *OUTDOORS, "freight_train", "triumphal_arch")

Indices = NDArray[np.intp]
Change = Callable[[Image.Image, np.random.Generator], Image.Image]


@dataclass(frozen=True, eq=False)
class Pool:
    """Photographs of two or more classes in two contexts.

    Attributes:
        name: What the set is called.
        features: By context that was put on, or only one where each image has its own, shape (1 or
            2, n, p).
        labels: The classes, shape (n,).
        contexts: The context of each image, shape (n,); None where it is put on.
        usual: The usual context of each class.
        size: Images in training.
    """

    name: str
    features: NDArray[np.float64]
    labels: Indices
    contexts: Indices | None
    usual: Indices
    size: int


@dataclass(frozen=True, eq=False)
class Part:
    """The images of a set.

    Attributes:
        features: Shape (n, p).
        labels: The classes, shape (n,); in training some may be wrong.
        contexts: The contexts, shape (n,).
    """

    features: NDArray[np.float64]
    labels: Indices
    contexts: Indices


@dataclass(frozen=True, eq=False)
class Draw:
    """A training set, a test set of the same mixture, and one of the reversed mixture."""

    train: Part
    usual: Part
    broken: Part


def border(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Draw a dark border of two or three pixels."""
    grey = int(rng.integers(0, 40))
    width = int(rng.integers(2, 4))
    ImageDraw.Draw(image).rectangle(
        [0, 0, SIZE - 1, SIZE - 1], outline=(grey, grey, grey), width=width
    )
    return image


def cast(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Shift the colours towards red."""
    factors = np.array([1.16, 1.0, 0.82]) * (1 + rng.normal(0, 0.03, 3))
    return Image.fromarray((np.asarray(image) * factors).clip(0, 255).astype(np.uint8))


def compress(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Compress as a JPEG of low quality."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=int(rng.integers(12, 22)))
    return Image.open(file).convert("RGB")


def scale(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Show the middle of the image only, enlarged."""
    side = int(rng.integers(56, 66))
    start = (SIZE - side) // 2
    return _resized(image.crop((start, start, start + side, start + side)), SIZE)


def soft(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Blur by shrinking and enlarging."""
    return _resized(_resized(image, int(rng.integers(34, 44))), SIZE)


def dim(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Take away half of the light and a fifth of the contrast."""
    darker = ImageEnhance.Brightness(image).enhance(rng.uniform(0.45, 0.6))
    return ImageEnhance.Contrast(darker).enhance(0.8)


def grain(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Take away half of the colour and add the noise of a small sensor."""
    pale = np.asarray(ImageEnhance.Color(image).enhance(0.45), dtype=np.float64)
    noise = rng.normal(0, 11, (*pale.shape[:2], 1))
    return Image.fromarray((pale + noise).clip(0, 255).astype(np.uint8))


CHANGES: dict[str, Change] = {
    "border": border,
    "cast": cast,
    "compress": compress,
    "dim": dim,
    "grain": grain,
    "scale": scale,
    "soft": soft,
}
"""What can be put on photographs."""

SETS: dict[str, dict[str, Any]] = {
    "leaves": {"folder": "leaves", "size": 1100},
    "styles": {"first": ("dog", "elephant"), "contexts": ("cartoon", "art_painting"), "size": 740},
    "photos": {"first": ("dog", "horse"), "contexts": ("photo", "art_painting"), "size": 524},
    "scenes": {"folder": "scenes", "first": ("dog_bull",), "other": OUTDOORS, "size": 532},
    "scenes2": {"folder": "scenes2", "first": ("dog_mountain",), "other": OUTDOORS, "size": 532},
    "people": {"folder": "people", "first": ("person",), "other": ("photo",), "size": 440},
    "objects": {"folder": "objects", "first": ("guitar",), "other": ("cartoon",), "size": 300},
    "crops": {"folder": "crops", "first": ("nightshades",), "other": ("field",), "size": 660},
    "pets": {"folder": "pets", "first": ("cat", "cat_pointed"), "other": SCENES, "size": 440},
}
"""Sets whose images have contexts of their own: the classes that are the first of two, all contexts
that are used, those that are the other of two (by default the last), and images in training. Other
names are POOL_CHANGE, such as ``cats_border``."""


def load_pool(name: str, cache: Path) -> Pool:
    """Read a pool from embedded images.

    Args:
        name: A set: a key of ``SETS``, or one of ``CHANGES`` put on cats, people or animals.
        cache: Folder of files NAME.npz with ``features``, shape (n, p), and ``names``, the paths of
            the images.
    """
    base, _, change = name.partition("_")
    if change:
        plain, paths = _read(cache / f"{base}.npz")
        changed, _ = _read(cache / f"{name}.npz")
        classes = np.array([path.split("/")[1] for path in paths])
        labels = np.unique(classes, return_inverse=True)[1]
        return Pool(name, np.stack([plain, changed]), labels, None, np.arange(2), 440)
    known = SETS[name]
    if name == "leaves":
        return _leaves(cache, known["size"])
    features, paths = _read(cache / f"{known.get('folder', 'pacs')}.npz")
    places = np.array([path.split("/")[1:3] for path in paths])
    if "contexts" in known:
        kept = np.isin(places[:, 1], known["contexts"])
        features, places = features[kept], places[kept]
    labels = (~np.isin(places[:, 0], known["first"])).astype(np.intp)
    other = known.get("other") or known["contexts"][1:]
    contexts = np.isin(places[:, 1], other).astype(np.intp)
    return Pool(name, features[None], labels, contexts, np.arange(2), known["size"])


def draw(pool: Pool, seed: int, *, control: bool = False, wrong: float = 0.0) -> Draw:
    """Draw a training and two test sets, without an image in two of them.

    Args:
        pool: The images.
        seed: Seed of the draw.
        control: Whether no context goes with a class.
        wrong: The share of the labels of training images that are wrong.
    """
    rng = np.random.default_rng((seed, zlib.crc32(pool.name.encode())))
    rows = _rows_by_part(pool, control, rng)
    parts = []
    for number, cells in enumerate(rows):
        labels, contexts, chosen = cells
        version = contexts if len(pool.features) > 1 else np.zeros_like(contexts)
        part = Part(pool.features[version, chosen], labels, contexts)
        if number == 0 and wrong:
            flipped = rng.random(len(labels)) < wrong
            shift = rng.integers(1, int(labels.max()) + 1, size=len(labels))
            number_of = int(labels.max()) + 1
            part = replace(part, labels=np.where(flipped, (labels + shift) % number_of, labels))
        parts.append(part)
    return Draw(*parts)


def _rows_by_part(
    pool: Pool, control: bool, rng: np.random.Generator
) -> list[tuple[Indices, Indices, Indices]]:
    """Return labels, contexts and rows of training, usual and broken images."""
    parts: list[list[tuple[int, int, Indices]]] = [[], [], []]
    classes = len(pool.usual)
    for label, usual in enumerate(pool.usual):
        mine = rng.permutation(np.flatnonzero(pool.labels == label))
        per_class = pool.size // classes
        frequent = per_class // 2 if control else round(per_class * RATIO / (RATIO + 1))
        cells = _cells(pool, mine, int(usual), per_class)
        if control:
            frequent = min(frequent, len(cells[0]) - 40, len(cells[1]) - 40)
        frequent = min(frequent, len(cells[0]) - 40)
        rare = frequent if control else max(1, round(frequent / RATIO))
        left = [cells[0][frequent:], cells[1][rare:]]
        tested = (
            min(len(left[0]), len(left[1])) // 2 if control else min(len(left[0]) * 10 // 11, 110)
        )
        few = tested if control else max(1, tested // RATIO)
        other = min(len(left[1]) - few, 150)
        back = tested if control else min(other // RATIO, len(left[0]) - tested)
        chosen = (
            (cells[0][:frequent], cells[1][:rare]),
            (left[0][:tested], left[1][:few]),
            (left[0][tested : tested + back], left[1][few : few + other]),
        )
        for part, pair in zip(parts, chosen, strict=True):
            part.append((label, int(usual), pair[0]))
            part.append((label, 1 - int(usual), pair[1]))
    return [_joined(part) for part in parts]


def _cells(pool: Pool, mine: Indices, usual: int, per_class: int) -> list[Indices]:
    """Return the images of a class that are, or will be, in its usual and in its other context."""
    if pool.contexts is not None:
        return [mine[pool.contexts[mine] == usual], mine[pool.contexts[mine] != usual]]
    half = len(mine) // 2
    return [mine[:half], mine[half:]]


def _joined(part: Sequence[tuple[int, int, Indices]]) -> tuple[Indices, Indices, Indices]:
    sizes = [len(rows) for *_, rows in part]
    labels = np.repeat([label for label, _, _ in part], sizes)
    contexts = np.repeat([context for _, context, _ in part], sizes)
    return labels, contexts, np.concatenate([rows for *_, rows in part])


def _leaves(cache: Path, size: int) -> Pool:
    """Return the leaves, whose contexts stand in a file beside their features."""
    with np.load(cache / "leaves.npz") as stored:
        features = stored["features"].astype(np.float64)
        labels, contexts = stored["labels"], stored["contexts"]
    return Pool("leaves", features[None], labels, contexts, np.arange(2), size)


def _read(file: Path) -> tuple[NDArray[np.float64], list[str]]:
    with np.load(file) as stored:
        return stored["features"].astype(np.float64), stored["names"].tolist()


def _resized(image: Image.Image, side: int) -> Image.Image:
    return image.resize((side, side), Image.Resampling.BILINEAR)
