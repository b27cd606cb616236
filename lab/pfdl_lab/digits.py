"""Grey digits to be coloured: MNIST from its files, or the small digits that scikit-learn brings.

torchvision's reader of MNIST takes neither packed files nor a folder without ``MNIST/raw``, reads
files of any size, and takes damaged or swapped ones for MNIST; this one answers them with a
sentence.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pfdl._internal.files import read_bytes_file
from pfdl.data.spuco_mnist import Digits as ImagesAndLabels, small_digits

MNIST_VARIABLE = "PFDL_MNIST"
"""Environment variable that names the folder of the MNIST files."""

MNIST_FILES = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
"""The four files, and the md5 of what each of them holds once it is unpacked."""

_IMAGES_HEADER = 16
_LABELS_HEADER = 8
"""Bytes before the pixels and before the labels."""

MAX_BYTES = 1 << 28
"""Larger files are not read and not unpacked to the end; MNIST's largest has 47 million bytes."""


@dataclass(frozen=True)
class Digits:
    """Images of digits and what they show.

    Attributes:
        images: Shape (n, 28, 28), bytes.
        labels: Shape (n,), 0 to 9.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Digits:
        return Digits(self.images[rows], self.labels[rows])


@dataclass(frozen=True)
class DigitSource:
    """Grey digits, cut into the three parts that the protocol colours.

    Attributes:
        name: What these digits are, for the heading of a report.
        train: For the two training environments.
        held_out: For further samples of the two training environments, never trained on.
        test: For the test environment.
        is_mnist: Whether this is MNIST itself.
    """

    name: str
    train: Digits
    held_out: Digits
    test: Digits
    is_mnist: bool

    @property
    def uncut(self) -> tuple[ImagesAndLabels, ImagesAndLabels]:
        """Training and test digits as MNIST's files have them, for
        :class:`pfdl.data.SpuCoMNIST`.
        """
        images = np.concatenate([self.train.images, self.test.images])
        labels = np.concatenate([self.train.labels, self.test.labels])
        return (images, labels), (self.held_out.images, self.held_out.labels)


def find_digits(folder: str | Path | None = None) -> DigitSource:
    """Return MNIST if a folder is named, otherwise scikit-learn's digits, whose ``is_mnist`` is
    false.

    Args:
        folder: Where the four MNIST files are; by default what the environment variable
            ``PFDL_MNIST`` says.

    Raises:
        FileNotFoundError: If the folder does not hold the files.
        ValueError: If a file is not what it should be.
    """
    folder = folder or os.environ.get(MNIST_VARIABLE)
    return read_mnist(Path(folder)) if folder else bundled_digits()


def read_mnist(folder: Path) -> DigitSource:
    """Read the four MNIST files, ``.gz`` or not, in ``folder`` or in torchvision's ``MNIST/raw``
    below it.

    IRM's protocol takes its training environments from the first 50,000 rows of the training file
    and its test environment from the last 10,000; MNIST's own test file, unused by it, serves as
    held-out part. ValueError if a file is not MNIST's of that name, byte for byte.
    """
    contents = [_read_file(_find_file(folder, name), md5) for name, md5 in MNIST_FILES.items()]
    train = _to_digits(*contents[:2])
    held_out = _to_digits(*contents[2:])
    return DigitSource("MNIST", train[:50_000], held_out, train[50_000:], is_mnist=True)


def bundled_digits() -> DigitSource:
    """Return scikit-learn's 1,797 digits of 8×8 pixels, enlarged threefold and framed to MNIST's
    28×28.
    """
    digits = Digits(*small_digits())
    return DigitSource(
        "scikit-learn's digits (not MNIST)",
        digits[:1200],
        digits[1200:1500],
        digits[1500:],
        is_mnist=False,
    )


def _to_digits(images: bytes, labels: bytes) -> Digits:
    pixels = np.frombuffer(images, dtype=np.uint8, offset=_IMAGES_HEADER).reshape(-1, 28, 28)
    return Digits(pixels, np.frombuffer(labels, dtype=np.uint8, offset=_LABELS_HEADER))


def _read_file(path: Path, md5: str) -> bytes:
    """Read a file, unpacked if need be; its checksum says that it is the right one, header and
    all.
    """
    content = read_bytes_file(path, MAX_BYTES)
    if path.suffix == ".gz":
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
                content = stream.read(MAX_BYTES + 1)  # a bomb is stopped here
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(
                f"{path} cannot be unpacked ({error}); it is damaged, fetch it again."
            ) from error
    if (found := hashlib.md5(content, usedforsecurity=False).hexdigest()) != md5:
        raise ValueError(
            f"{path} is not MNIST's file of that name (md5 {found} instead of {md5}); it is"
            " damaged, swapped with another, or of another data set. Fetch it again."
        )
    return content


def _find_file(folder: Path, name: str) -> Path:
    for place in (folder, folder / "MNIST" / "raw"):
        for candidate in (place / name, place / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    raise FileNotFoundError(
        f"{folder} has no file {name} or {name}.gz; name the folder with the four MNIST files (or"
        f" set {MNIST_VARIABLE}). torchvision.datasets.MNIST({str(folder)!r}, download=True)"
        " fetches them."
    )
