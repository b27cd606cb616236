"""Grey digits to be coloured: MNIST from its files, or the small digits that scikit-learn brings."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pfdl._internal.files import read_bytes_file

MNIST_FILES = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
"""The four files, and the md5 of what each of them holds once it is unpacked."""

_IMAGES_HEADER, _LABELS_HEADER = 16, 8
"""Bytes before the pixels and before the labels."""

MAX_BYTES = 1 << 28
"""Larger files are not read and not unpacked to the end; MNIST's largest has 47 million bytes."""


@dataclass(frozen=True)
class Digits:
    """Grey digits as bytes, shape (n, 28, 28), and what they show, shape (n,), 0 to 9."""

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Digits:
        return Digits(self.images[rows], self.labels[rows])


def read_mnist(folder: str | Path) -> tuple[Digits, Digits]:
    """Read MNIST's training and test digits.

    Args:
        folder: Where the four files are, ``.gz`` or not; or what was given to ``torchvision.datasets.MNIST``.

    Raises:
        FileNotFoundError: If the folder does not hold the files.
        ValueError: If a file is not MNIST's of that name, byte for byte.
    """
    contents = [_read_file(_find_file(Path(folder), name), md5) for name, md5 in MNIST_FILES.items()]
    train, test = (_to_digits(images, labels) for images, labels in (contents[:2], contents[2:]))
    return train, test


@cache
def small_digits() -> tuple[Digits, Digits]:
    """Return scikit-learn's digits of 8×8 pixels, enlarged threefold and framed to MNIST's 28×28.

    Of these 1,797 digits 300 in the middle are for the test.
    """
    from sklearn.datasets import load_digits

    small, labels = load_digits(return_X_y=True)
    pixels = np.rint(small.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    images = np.pad(np.kron(pixels, np.ones((1, 3, 3), dtype=np.uint8)), ((0, 0), (2, 2), (2, 2)))
    digits, test = Digits(images, labels.astype(np.uint8)), np.arange(1200, 1500)
    return digits[np.delete(np.arange(len(digits)), test)], digits[test]


def _to_digits(images: bytes, labels: bytes) -> Digits:
    pixels = np.frombuffer(images, dtype=np.uint8, offset=_IMAGES_HEADER).reshape(-1, 28, 28)
    return Digits(pixels, np.frombuffer(labels, dtype=np.uint8, offset=_LABELS_HEADER))


def _read_file(path: Path, md5: str) -> bytes:
    """Read a file, unpacked if need be; its checksum says that it is the right one, header and all."""
    content = read_bytes_file(path, MAX_BYTES)
    if path.suffix == ".gz":
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
                content = stream.read(MAX_BYTES + 1)  # a bomb is stopped here
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} cannot be unpacked ({error}); it is damaged, fetch it again.") from error
    if (found := hashlib.md5(content, usedforsecurity=False).hexdigest()) != md5:
        raise ValueError(
            f"{path} is not MNIST's file of that name (md5 {found} instead of {md5}); it is damaged, swapped with "
            "another, or of another data set. Fetch it again."
        )
    return content


def _find_file(folder: Path, name: str) -> Path:
    for place in (folder, folder / "MNIST" / "raw"):
        for candidate in (place / name, place / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    raise FileNotFoundError(
        f"{folder} has no file {name} or {name}.gz; name the folder with the four MNIST files. "
        f"torchvision.datasets.MNIST({str(folder)!r}, download=True) fetches them."
    )
