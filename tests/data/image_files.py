"""Image files of every kind, made by hand, for the tests of reading and of folders."""

from __future__ import annotations

import io
import struct
import zlib
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image


def noise(seed: int, size: tuple[int, int] = (8, 6)) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def png(width: int, height: int, *chunks: tuple[bytes, bytes], pixels: bytes = bytes(64)) -> bytes:
    """A sound PNG of a few bytes that claims to hold so many pixels, with further chunks before
    them.
    """
    header = (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    content = b"\x89PNG\r\n\x1a\n"
    for kind, body in (header, *chunks, (b"IDAT", zlib.compress(pixels)), (b"IEND", b"")):
        content += (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )
    return content


def image_bombs() -> dict[str, bytes]:
    """Small files that claim, or unpack to, more than anybody should decode."""
    packed = zlib.compress(bytes(1 << 26), 9)
    size = struct.pack("<HH", 65535, 65535)
    gif = encoded(Image.new("P", (8, 8)), "GIF")
    return {
        "pixels": png(10**5, 10**5),
        "text": png(8, 8, (b"zTXt", b"key\0\0" + packed)),
        "international text": png(8, 8, (b"iTXt", b"key\0\1\0\0\0" + packed)),
        "colour profile": png(8, 8, (b"iCCP", b"name\0\0" + packed)),
        "screen of a GIF": gif[:6] + size + gif[10:],
        "PPM": b"P6 40000 40000 255\n",
        "BMP": (
            b"BM"
            + struct.pack(
                "<IHHIIiiHHIIiiII", 100, 0, 0, 54, 40, 2**30, 2**30, 1, 24, 0, 0, 0, 0, 0, 0
            )
        ),
    }


def slow_files() -> dict[str, bytes]:
    """Files of kinds of which larger ones take minutes to decode."""
    jpeg = encoded(Image.new("L", (64, 64)), "JPEG", progressive=True)
    head, *scans, end = jpeg.split(b"\xff\xda")
    shortest = min(scans, key=len)
    return {
        "plain PBM": b"P1 4 4\n" + b"#c\n" * 1000,
        "plain PGM": b"P2 2 1 255\n" + b"3 4\n",
        "plain PPM": b"P3 1 1 255\n" + b"3 4 5\n",
        "PPM of few greys": b"P6 1200 1200 7\n" + bytes(3 * 1200 * 1200),
        "JPEG of many scans": b"\xff\xda".join([head, *scans, *[shortest] * 200, end]),
    }


def grid(*levels, count: int = 1) -> dict[str, int]:
    """Return folders of so many images each, one for each choice of a name from every level."""
    return {"/".join(names): count for names in product(*levels)}


def make_folder(root: Path, cells: dict[str, int]) -> Path:
    """Small pictures, all different: ``{"cat/snow": 3}`` makes three in that folder."""
    seed = 0
    for folder, count in cells.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            seed += 1
            (root / folder / f"{number:03d}.png").write_bytes(encoded(noise(seed)))
    return root


def celeba(root: Path) -> None:
    """Twelve faces with two of the forty attributes, in the authors' text files and in the CSV
    files of the mirror.
    """
    make_folder(root, {"img_align_celeba": 12})
    names = [f"{number:03d}.png" for number in range(12)]
    hair, male, sets = [-1, 1] * 6, [1, 1, -1, -1] * 3, [0] * 6 + [1] * 2 + [2] * 4
    lines = [f"{n}  {a:2d} {b:2d}" for n, a, b in zip(names, hair, male, strict=True)]
    (root / "list_attr_celeba.txt").write_text("\n".join(["12", "Blond_Hair Male ", *lines]) + "\n")
    (root / "list_eval_partition.txt").write_text(
        "".join(f"{n} {s}\n" for n, s in zip(names, sets, strict=True))
    )
    attributes = pd.DataFrame({"image_id": names, "Blond_Hair": hair, "Male": male})
    attributes.to_csv(root / "list_attr_celeba.csv", index=False)
    attributes[["image_id"]].assign(partition=sets).to_csv(
        root / "list_eval_partition.csv", index=False
    )
