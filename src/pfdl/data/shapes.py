"""Generate images of shapes on backgrounds: 8 classes × 8 contexts, from a seed, with nothing to
download.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from pfdl._internal.threads import map_in_threads
from pfdl._internal.validation import check_count
from pfdl.data.images import hash_bytes
from pfdl.data.sources import Sample

Array = NDArray[Any]
Outline = Callable[[Array, Array], Array]
Texture = Callable[[Array, Array, np.random.Generator], Array]

SIZE = 64
"""Height and width of the images as drawn."""

RECIPE = "shapes-1"
"""Changes whenever the same seed is to give other images."""

# Chosen by looking at pictures and at plain training (ERM) alone.
_RADIUS = (0.5, 0.75)
_TURN = 0.35
_SHIFT = 0.3
_RIM = 0.15
_OPACITY = (0.8, 1.0)
_BLOTS = 2
_NOISE = 0.05

_STACK = 20


def _length(x: Array, y: Array) -> Array:
    # Several times as fast as np.hypot, whose care is not needed here
    length: Array = np.sqrt(x * x + y * y)
    return length


def _polygon(corners: int, size: float) -> Outline:
    def outline(x: Array, y: Array) -> Array:
        sector = 2 * np.pi / corners
        angle = np.mod(np.arctan2(y, x), sector) - sector / 2
        return _length(x, y) * np.cos(angle) - size

    return outline


def _star(x: Array, y: Array) -> Array:
    sector = 2 * np.pi / 5
    angle = np.abs(np.mod(np.arctan2(y, x), sector) - sector / 2)
    return _length(x, y) * np.cos(angle - 0.95) - 0.46


def _cross(x: Array, y: Array) -> Array:
    wide = np.abs(x)
    high = np.abs(y)
    return np.minimum(np.maximum(wide - 0.95, high - 0.33), np.maximum(wide - 0.33, high - 0.95))


OUTLINES: dict[str, Outline] = {
    "crescent": lambda x, y: np.maximum(_length(x, y) - 0.92, 0.66 - _length(x - 0.42, y)),
    "cross": _cross,
    "disc": lambda x, y: _length(x, y) - 0.82,
    "hexagon": _polygon(6, 0.8),
    "ring": lambda x, y: np.abs(_length(x, y) - 0.7) - 0.24,
    "square": _polygon(4, 0.74),
    "star": _star,
    "triangle": _polygon(3, 0.56),
}
"""The classes: functions of two coordinates, negative inside a shape of about the size of the unit
disc.
"""


def _wave(phase: Array) -> Array:
    return 0.5 + 0.5 * np.sin(phase)


def _checks(x: Array, y: Array, rng: np.random.Generator) -> Array:
    return np.where(np.sin(11 * x) * np.sin(11 * y) > 0, 1, 0).astype(np.float32)


def _dots(x: Array, y: Array, rng: np.random.Generator) -> Array:
    dots: Array = 1 / (1 + np.exp(-8 * (np.sin(14 * x) + np.sin(14 * y) - 0.9)))
    return dots


def _rings(x: Array, y: Array, rng: np.random.Generator) -> Array:
    center = rng.uniform(-1.2, 1.2, (2, len(x), 1, 1)).astype(np.float32)
    return _wave(15 * _length(x - center[0], y - center[1]))


def _rays(x: Array, y: Array, rng: np.random.Generator) -> Array:
    center = rng.uniform(-0.8, 0.8, (2, len(x), 1, 1)).astype(np.float32)
    return _wave(10 * np.arctan2(y - center[1], x - center[0]))


def _bricks(x: Array, y: Array, rng: np.random.Generator) -> Array:
    row = np.floor(4 * y)
    along = np.mod(2 * x + 0.5 * np.mod(row, 2), 1)
    mortar = (along < 0.12) | (np.mod(4 * y, 1) < 0.22)
    return np.where(mortar, 1, 0).astype(np.float32)


def _clouds(x: Array, y: Array, rng: np.random.Generator) -> Array:
    """Draw smooth random blots: a sum of waves in random directions."""
    total = np.zeros_like(x)
    for _ in range(5):
        kx, ky, phase = rng.normal(0, 4, (3, len(x), 1, 1)).astype(np.float32)
        total += np.sin(kx * x + ky * y + phase)
    return _wave(total)


TEXTURES: dict[str, tuple[Texture, tuple[float, float, float], tuple[float, float, float]]] = {
    "bricks": (_bricks, (0.62, 0.30, 0.22), (0.80, 0.76, 0.70)),
    "checks": (_checks, (0.25, 0.25, 0.30), (0.78, 0.78, 0.80)),
    "clouds": (_clouds, (0.35, 0.55, 0.82), (0.90, 0.92, 0.95)),
    "dots": (_dots, (0.80, 0.55, 0.65), (0.45, 0.20, 0.40)),
    "rays": (_rays, (0.90, 0.75, 0.35), (0.75, 0.45, 0.20)),
    "rings": (_rings, (0.25, 0.45, 0.45), (0.50, 0.75, 0.70)),
    "stripes": (lambda x, y, rng: _wave(16 * x), (0.30, 0.50, 0.25), (0.60, 0.72, 0.40)),
    "waves": (
        lambda x, y, rng: _wave(13 * y + 2.5 * np.sin(6 * x)),
        (0.20, 0.30, 0.60),
        (0.45, 0.60, 0.80),
    ),
}
"""The contexts: a pattern between 0 and 1 over coordinates from −1 to 1, and the two colours it
goes between.
"""


class Shapes:
    """Generate images of a shape (the class) in front of a texture with its palette (the context).

    Place, size, tilt, colours and opacity of the shape vary, and it stands among blots and noise:
    it can be learnt, but the background is easier. It is a source like a folder: split it with
    :func:`pfdl.data.make_split`.

    Args:
        per_cell: Images of every class in every context.
        strength: How much the background shows of the context, from 0 to 1. At 0 all contexts look
            the same, at 1 each has its own texture and colours.
        seed: The images follow from it. (The seed of a split chooses among them.)

    Example:
        >>> from pfdl.data import ContextImages, Shapes, make_split
        >>> source = Shapes(per_cell=13)
        >>> manifest = make_split(source, ratio="5:1", seed=0)
        >>> image, label, context = ContextImages(source, manifest, "test-1:5")[0]
        >>> image.shape, manifest.classes[label], manifest.contexts[context]
        (torch.Size([3, 64, 64]), 'crescent', 'bricks')
    """

    def __init__(self, per_cell: int = 100, *, strength: float = 1.0, seed: int = 0) -> None:
        check_count("per_cell", per_cell, 2)
        check_count("seed", seed, 0)
        if not isinstance(strength, (int, float)) or not 0 <= strength <= 1:
            raise ValueError(f"strength is {strength}; it must lie between 0 and 1.")
        self.per_cell = per_cell
        self.strength = strength
        self.seed = seed

    @cached_property
    def images(self) -> Tensor:
        """Draw all images on first use: bytes, shape (8 · 8 · per_cell, 3, 64, 64), in the order of
        ``samples``.
        """
        kinds = list(product(OUTLINES, TEXTURES))
        # NumPy works outside the interpreter lock
        cells = map_in_threads(lambda kind: self._draw_cell(*kind), kinds, os.cpu_count() or 1)
        return torch.from_numpy(np.concatenate(list(cells)))

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """Return every image, in the order of the paths.

        The hash is that of the recipe: pixels may differ by a rounding between processors, and
        splits must not.
        """
        samples = []
        for shape, texture, number in product(OUTLINES, TEXTURES, range(self.per_cell)):
            path = f"{shape}/{texture}/{number:06d}"
            # The strength is called "temptation" here: another word would give other splits than
            # those measured.
            digest = hash_bytes(
                f"{RECIPE} seed {self.seed} temptation {float(self.strength)!r} {path}".encode()
            )
            samples.append(Sample(path, shape, texture, digest, digest))
        return tuple(samples)

    @property
    def description(self) -> Mapping[str, Any]:
        """Return what these images are, for the manifest."""
        return {
            "kind": "shapes",
            "recipe": RECIPE,
            "per_cell": self.per_cell,
            "strength": self.strength,
            "seed": self.seed,
        }

    def load(self, path: str, size: int, sha256: str) -> Tensor:
        """Return one image as bytes of shape (3, size, size); ValueError if the manifest was made
        for other ones.
        """
        index = self._index.get(path)
        if index is None or self.samples[index].sha256 != sha256:
            raise ValueError(
                f"{path!r} is not the image of the manifest; draw with the recipe, strength and"
                f" seed that its JSON file names (here {RECIPE}, {self.strength} and {self.seed}),"
                " and with at least its per_cell."
            )
        image = self.images[index]
        if size == SIZE:
            return image
        scaled = interpolate(
            image[None].float(), (size, size), mode="bilinear", antialias=True, align_corners=False
        )
        return scaled[0].round().clamp(0, 255).to(torch.uint8)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {sample.path: index for index, sample in enumerate(self.samples)}

    def _draw_cell(self, shape: str, texture: str) -> NDArray[np.uint8]:
        """Return all images of a class in a context, in stacks that fit a processor's cache.

        Every stack has its own streams of chance, for the background, the things before it and the
        noise: the first images stay what they are when there are to be more of them, the shapes
        when the strength changes.
        """
        stacks = []
        for start in range(0, self.per_cell, _STACK):
            cell = list(OUTLINES).index(shape), list(TEXTURES).index(texture)
            key = [self.seed, *cell, start]
            behind, before, noise = (np.random.default_rng([*key, stream]) for stream in range(3))
            picture = _background(texture, self.strength, behind)
            for _ in range(_BLOTS):
                picture = _lay_over(picture, "disc", (0.04, 0.12), before)
            picture = _lay_over(picture, shape, _RADIUS, before)
            picture += _NOISE * noise.standard_normal(picture.shape, dtype=np.float32)
            shades = np.clip(picture, 0, 1) * 255
            stacks.append(np.rint(shades).astype(np.uint8))
        return np.concatenate(stacks)[: self.per_cell]


def _grid(
    rng: np.random.Generator, turn: float, scale: tuple[float, float], shift: float
) -> tuple[Array, Array]:
    """Return the coordinates of a stack's pixels, turned by up to ±turn, scaled and shifted at
    random.
    """
    axis = np.linspace(-1, 1, SIZE, dtype=np.float32)
    columns = axis[None, None, :]
    rows = axis[None, :, None]
    angle = _uniform(rng, -turn, turn)
    factor = _uniform(rng, *scale)
    x = columns - _uniform(rng, -shift, shift)
    y = rows - _uniform(rng, -shift, shift)
    cosine = np.cos(angle) / factor
    sine = np.sin(angle) / factor
    across = cosine * x + sine * y
    along = cosine * y - sine * x
    return across, along


def _background(texture: str, strength: float, rng: np.random.Generator) -> Array:
    """Draw the context's pattern in its palette, mixed with clouds of any colours where the
    strength is below 1.
    """
    pattern, *palette = TEXTURES[texture]
    x, y = _grid(rng, turn=0.4, scale=(0.8, 1.25), shift=1)
    shown = pattern(x, y, rng)
    colors = [np.array(color) + rng.normal(0, 0.06, (_STACK, 3)) for color in palette]
    own = _blend(shown, *colors)
    if strength == 1:
        return own
    neutral = _blend(_clouds(x, y, rng), *rng.uniform(0.1, 0.9, (2, _STACK, 3)))
    return strength * own + (1 - strength) * neutral


def _lay_over(
    picture: Array, shape: str, radius: tuple[float, float], rng: np.random.Generator
) -> Array:
    """Draw a pale shape with a dark rim somewhere into every picture."""
    x, y = _grid(rng, turn=_TURN, scale=radius, shift=_SHIFT)
    distance = OUTLINES[shape](x, y)
    for low, high, edge in ((0.0, 0.35, 0.0), (0.65, 1.0, _RIM)):
        inside = np.clip(0.5 - (distance + edge) * 8, 0, 1)
        cover = (inside * _uniform(rng, *_OPACITY))[:, None]
        color = rng.uniform(low, high, (_STACK, 3, 1, 1)).astype(np.float32)
        picture = picture + (color - picture) * cover
    return picture


def _blend(pattern: Array, first: NDArray[Any], second: NDArray[Any]) -> Array:
    """Return colours (n, 3) mixed by a pattern (n, h, w), as an image (n, 3, h, w)."""
    low = first.astype(np.float32)[:, :, None, None]
    high = second.astype(np.float32)[:, :, None, None]
    return low + (high - low) * pattern[:, None]


def _uniform(rng: np.random.Generator, low: float, high: float) -> Array:
    return rng.uniform(low, high, (_STACK, 1, 1)).astype(np.float32)
