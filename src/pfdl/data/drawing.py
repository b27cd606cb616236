"""Outlines and textures of :class:`pfdl.data.Shapes`; all functions work on whole stacks of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Outline = Callable[[Array, Array], Array]
Texture = Callable[[Array, Array, np.random.Generator], Array]


def _length(x: Array, y: Array) -> Array:
    length: Array = np.sqrt(x * x + y * y)  # several times as fast as np.hypot, whose care is not needed here
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
    wide, high = np.abs(x), np.abs(y)
    return np.minimum(np.maximum(wide - 0.95, high - 0.33), np.maximum(wide - 0.33, high - 0.95))


def _disc(x: Array, y: Array) -> Array:
    return _length(x, y) - 0.82


def _ring(x: Array, y: Array) -> Array:
    return np.abs(_length(x, y) - 0.7) - 0.24


def _crescent(x: Array, y: Array) -> Array:
    return np.maximum(_length(x, y) - 0.92, 0.66 - _length(x - 0.42, y))


OUTLINES: dict[str, Outline] = {
    "crescent": _crescent,
    "cross": _cross,
    "disc": _disc,
    "hexagon": _polygon(6, 0.8),
    "ring": _ring,
    "square": _polygon(4, 0.74),
    "star": _star,
    "triangle": _polygon(3, 0.56),
}
"""The classes: functions of two coordinates, negative inside a shape of about the size of the unit disc."""


def _wave(phase: Array) -> Array:
    return 0.5 + 0.5 * np.sin(phase)


def _stripes(x: Array, y: Array, rng: np.random.Generator) -> Array:
    return _wave(16 * x)


def _checks(x: Array, y: Array, rng: np.random.Generator) -> Array:
    return np.where(np.sin(11 * x) * np.sin(11 * y) > 0, 1, 0).astype(np.float32)


def _dots(x: Array, y: Array, rng: np.random.Generator) -> Array:
    dots: Array = 1 / (1 + np.exp(-8 * (np.sin(14 * x) + np.sin(14 * y) - 0.9)))
    return dots


def _waves(x: Array, y: Array, rng: np.random.Generator) -> Array:
    return _wave(13 * y + 2.5 * np.sin(6 * x))


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


def clouds(x: Array, y: Array, rng: np.random.Generator) -> Array:
    """Draw smooth random blots: a sum of waves in random directions."""
    total = np.zeros_like(x)
    for _ in range(5):
        kx, ky, phase = rng.normal(0, 4, (3, len(x), 1, 1)).astype(np.float32)
        total += np.sin(kx * x + ky * y + phase)
    return _wave(total)


TEXTURES: dict[str, tuple[Texture, tuple[float, float, float], tuple[float, float, float]]] = {
    "bricks": (_bricks, (0.62, 0.30, 0.22), (0.80, 0.76, 0.70)),
    "checks": (_checks, (0.25, 0.25, 0.30), (0.78, 0.78, 0.80)),
    "clouds": (clouds, (0.35, 0.55, 0.82), (0.90, 0.92, 0.95)),
    "dots": (_dots, (0.80, 0.55, 0.65), (0.45, 0.20, 0.40)),
    "rays": (_rays, (0.90, 0.75, 0.35), (0.75, 0.45, 0.20)),
    "rings": (_rings, (0.25, 0.45, 0.45), (0.50, 0.75, 0.70)),
    "stripes": (_stripes, (0.30, 0.50, 0.25), (0.60, 0.72, 0.40)),
    "waves": (_waves, (0.20, 0.30, 0.60), (0.45, 0.60, 0.80)),
}
"""The contexts: a pattern between 0 and 1 over coordinates from −1 to 1, and the two colours it goes between."""
