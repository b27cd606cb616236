"""Features of images in a file, and a source that gives them in place of the pixels."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pfdl._internal.files import read_frame, write_atomically
from pfdl.data.manifest import ManifestRow
from pfdl.data.sources import ContextSource, Sample

PATHS = "paths"
HASHES = "sha256"
MATRIX = "features"
NETWORK = "network"
FINGERPRINT = "fingerprint"
"""The arrays of a file of features; only the paths and the matrix are needed."""

MOST_BYTES = 1 << 33
"""Larger arrays are refused unread."""

MOST_PACKED = 50
UNPACKED = 1 << 26
"""So many bytes, and so many more for each byte of the file, are unpacked at most."""

MOST_TABLE_BYTES = 1 << 29

PATH_COLUMNS = ("path", "paths", "file", "filename", "file_name", "image")
FEATURE_FILES = (".npz", ".csv", ".tsv", ".parquet")


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """The features of images, a row for each.

    Attributes:
        paths: The name of each image, as the data has it.
        matrix: Shape (images, features), finite, in single precision.
        sha256: The hash of each image's file; ``""`` where the file of features does not say.
        network: What computed them, such as ``"lite0"``; ``""`` if that is not known.
        fingerprint: The hash of that network's weights; ``""`` if that is not known.
    """

    paths: tuple[str, ...]
    matrix: NDArray[np.float32]
    sha256: tuple[str, ...]
    network: str = ""
    fingerprint: str = ""

    @property
    def num_features(self) -> int:
        """Return the number of features of each image."""
        return int(self.matrix.shape[1])


def write_features(path: Path, table: FeatureTable) -> None:
    """Write features as an ``.npz`` file, whole or not at all."""
    if path.suffix.lower() != ".npz":
        raise ValueError(f"features are written as .npz: give a name that ends so, not {path}.")
    stream = io.BytesIO()
    np.savez(
        stream,
        paths=np.array(table.paths, dtype=np.str_),
        sha256=np.array(table.sha256, dtype=np.str_),
        features=table.matrix,
        network=np.array(table.network),
        fingerprint=np.array(table.fingerprint),
    )
    write_atomically(path, stream.getvalue())


def read_features(path: str | Path) -> FeatureTable:
    """Read features from a file; no code in it is run.

    Args:
        path: What :func:`write_features` wrote; an ``.npz`` file of your own with the arrays
            ``paths``, shape (n,), and ``features``, shape (n, p); or a table (``.csv``, ``.tsv``,
            ``.parquet``) with a column ``path`` whose other columns of numbers are the features.

    Returns:
        The features.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged, has other arrays, or a value is not finite.
    """
    path = Path(path)
    if path.suffix.lower() not in FEATURE_FILES:
        raise ValueError(
            f"{path} is no file of features; give one that ends in {', '.join(FEATURE_FILES)}."
        )
    if not path.is_file():
        raise FileNotFoundError(f"there is no file of features {path}; pfdl embed makes one.")
    arrays = _read_npz(path) if path.suffix.lower() == ".npz" else _read_table(path)
    try:
        return _checked(arrays)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _read_npz(path: Path) -> Mapping[str, NDArray[Any]]:
    """Read the arrays of an ``.npz`` file that are known here; each must be as large as its header
    says.
    """
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            present = {info.filename: info for info in archive.infolist()}
            for name in (PATHS, HASHES, MATRIX, NETWORK, FINGERPRINT):
                if (info := present.get(f"{name}.npy")) is not None:
                    arrays[name] = _read_array(archive, info)
    except Exception as error:  # numpy parses headers as Python; four unpackers raise their own
        raise ValueError(
            f"{path} is not a whole file of features ({' '.join(str(error).split())}); make it"
            " again: pfdl embed."
        ) from None
    return arrays


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """Read one array after its header, which could otherwise ask for any memory."""
    with archive.open(info) as stream:
        read_header = np.lib.format.read_array_header_2_0
        if np.lib.format.read_magic(stream) == (1, 0):
            read_header = np.lib.format.read_array_header_1_0
        shape, _, dtype = read_header(stream)
        size = math.prod(shape) * dtype.itemsize
        begins = stream.tell()
    if dtype.kind not in "fiuU":
        raise ValueError(f"{info.filename} holds {dtype}, neither numbers nor words")
    if size > MOST_BYTES:
        raise ValueError(f"{info.filename} has {size} bytes; more than {MOST_BYTES} are not read")
    if begins + size != info.file_size:
        raise ValueError(f"{info.filename} is not as large as its shape {shape} says")
    if size > UNPACKED + MOST_PACKED * info.compress_size:
        raise ValueError(
            f"{info.filename} has {size} bytes packed into {info.compress_size}; features are not"
            f" packed to less than 1/{MOST_PACKED}"
        )
    with archive.open(info) as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _read_table(path: Path) -> Mapping[str, NDArray[Any]]:
    frame = read_frame(path, limit=MOST_TABLE_BYTES)
    named = [column for column in frame.columns if str(column).lower() in PATH_COLUMNS]
    if not named:
        raise ValueError(f"{path} has no column {PATH_COLUMNS[0]!r}, the path of each image.")
    numbers = frame.drop(columns=named).select_dtypes("number")
    if numbers.empty:
        raise ValueError(f"{path} has no column of numbers beside the paths.")
    paths = frame[named[0]].astype(str).to_numpy(dtype=np.str_)
    return {PATHS: paths, MATRIX: numbers.to_numpy(dtype=np.float32)}


def _check_words(name: str, words: NDArray[Any], rows: int) -> None:
    if words.shape != (rows,) or words.dtype.kind != "U":
        raise ValueError(
            f"{name!r} has the shape {words.shape} and holds {words.dtype}; give a word for each of"
            f" the {rows} rows."
        )


def _checked(arrays: Mapping[str, NDArray[Any]]) -> FeatureTable:
    """Return arrays as features; ValueError unless they fit together."""
    lacking = [name for name in (PATHS, MATRIX) if name not in arrays]
    if lacking:
        raise ValueError(f"there is no array {lacking[0]!r}; needed are {PATHS!r} and {MATRIX!r}.")
    paths = arrays[PATHS]
    matrix = arrays[MATRIX]
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu" or not matrix.shape[1]:
        raise ValueError(f"the features have the shape {matrix.shape}; give numbers, (n, p).")
    hashes = arrays.get(HASHES, np.full(len(matrix), "", dtype=np.str_))
    _check_words(PATHS, paths, len(matrix))
    _check_words(HASHES, hashes, len(matrix))
    if not len(matrix):
        raise ValueError("there is no image in it.")
    names, counts = np.unique(paths, return_counts=True)
    if (counts > 1).any():
        first = str(names[counts > 1][0])
        raise ValueError(f"the image {first!r} is in it twice; give each image one row.")
    with np.errstate(over="ignore"):
        matrix = matrix.astype(np.float32)
    finite = np.isfinite(matrix).all(axis=1)
    if not finite.all():
        first = paths[~finite][0]
        raise ValueError(f"a feature of {str(first)!r} is not a finite number; compute it again.")
    return FeatureTable(
        tuple(paths.tolist()),
        matrix,
        tuple(hashes.tolist()),
        network=str(arrays.get(NETWORK, "")),
        fingerprint=str(arrays.get(FINGERPRINT, "")),
    )


class FeatureImages:
    """Images of which features are known: a source like any other that gives vectors for pixels.

    Args:
        pictures: The images.
        table: Their features; those of other images are not used. An image is found by the hash of
            its file, or where that is not known by its path.

    Attributes:
        pictures: As given.
        num_features: The width of the vectors.
        network: What computed them; ``""`` if that is not known.
        fingerprint: The hash of that network's weights; ``""`` if that is not known.
        is_decoded: Tells a dataset that a copy in its own memory would gain nothing.

    Raises:
        ValueError: If the features of an image are missing.
    """

    is_decoded = True

    def __init__(self, pictures: ContextSource, table: FeatureTable) -> None:
        self.pictures = pictures
        self.num_features = table.num_features
        self.network = table.network
        self.fingerprint = table.fingerprint
        by_hash = {hashed: row for row, hashed in enumerate(table.sha256) if hashed}
        by_path = {path: row for row, path in enumerate(table.paths)}
        rows: dict[str, int | None] = {}
        for sample in pictures.samples:
            is_hashed = bool(by_hash and sample.sha256)
            rows[sample.path] = (
                by_hash.get(sample.sha256) if is_hashed else by_path.get(sample.path)
            )
        absent = [path for path, row in rows.items() if row is None]
        if absent:
            raise ValueError(
                f"there are no features of {len(absent)} of {len(rows)} images, such as"
                f" {absent[0]!r}; make the file again from this data: pfdl embed."
            )
        self._rows, self._by_hash = rows, by_hash
        self._matrix = torch.from_numpy(table.matrix)

    @property
    def samples(self) -> Sequence[Sample]:
        """Return the samples of the images."""
        return self.pictures.samples

    @property
    def description(self) -> Mapping[str, Any]:
        """Return the description of the images."""
        return self.pictures.description

    def holds(self, images: Iterable[ManifestRow]) -> bool:
        """Return whether there are features of all these images, which may be none of the
        source's.
        """
        return all(image.path in self._rows or image.sha256 in self._by_hash for image in images)

    def load(self, path: str, size: int, sha256: str) -> Tensor:
        """Return the features of one image, shape (num_features,), whatever the size."""
        del size
        row = self._rows.get(path)
        if row is None:  # an image of the file that the source does not have
            row = self._by_hash.get(sha256)
        if row is None:
            raise ValueError(f"there are no features of {path!r}.")
        return self._matrix[row]


def is_at_hand(source: ContextSource, images: Sequence[ManifestRow]) -> bool:
    """Return whether images of a split can be asked of a source that has its test images."""
    if isinstance(source, FeatureImages):
        return source.holds(images)
    named = {sample.path for sample in source.samples}
    root = getattr(source, "root", None)
    others = [image.path for image in images if image.path not in named]
    return not others or (root is not None and all((root / path).is_file() for path in others))


def pictures_of(source: ContextSource) -> ContextSource:
    """Return the images of a source, whether or not it gives features in their place."""
    return source.pictures if isinstance(source, FeatureImages) else source
