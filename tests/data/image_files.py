"""Image files of every kind, made by hand, for the tests of reading and of folders."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image


def noise(seed: int, size: tuple[int, int] = (8, 6)) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A sound PNG of a few bytes that claims to hold so many pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")


def make_folder(root: Path, cells: dict[str, int]) -> Path:
    """Small pictures, all different: ``{"cat/snow": 3}`` makes three in that folder."""
    seed = 0
    for folder, count in cells.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            seed += 1
            (root / folder / f"{number:03d}.png").write_bytes(encoded(noise(seed)))
    return root
