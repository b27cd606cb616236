"""The idx format in which MNIST is published, read with every check that tells a good file from a bad one."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pfdl._internal.files import read_bytes_file

MAX_BYTES = 1 << 28
"""Larger files are not read and not unpacked to the end; MNIST's largest has 47 million bytes."""

_UNSIGNED_BYTE = 8
_GZIP_MAGIC = b"\x1f\x8b"


def read_idx(path: Path, ndim: int, md5: str | None = None) -> NDArray[np.uint8]:
    """Read one idx file of unsigned bytes, gzipped or not.

    Args:
        path: The file.
        ndim: Number of dimensions it must have: 3 for images, 1 for labels.
        md5: Checksum that the uncompressed file must have.

    Returns:
        Its array.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is truncated, corrupt, of another kind, or differs from its checksum.
    """
    content = _uncompressed(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE:
        raise ValueError(f"{path} does not start like an idx file of bytes; fetch it again.")
    if content[3] != ndim:
        raise ValueError(
            f"{path} holds {content[3]}-dimensional data where {ndim} are expected: "
            "images have 3, labels 1. Were two files swapped?"
        )
    start = 4 + 4 * ndim
    if len(content) < start:
        raise ValueError(f"{path} ends inside its header, after {len(content)} bytes; fetch it again.")
    shape = tuple(int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(ndim))
    if len(content) - start != math.prod(shape):
        raise ValueError(
            f"{path} has {len(content) - start} bytes of data where its header promises {math.prod(shape)}; "
            "it is truncated or corrupt, fetch it again."
        )
    if md5 is not None and (found := hashlib.md5(content, usedforsecurity=False).hexdigest()) != md5:
        raise ValueError(
            f"{path} is a valid idx file but not the expected one (md5 {found} instead of {md5}); "
            "was it swapped with another, or does it hold another data set?"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _uncompressed(path: Path) -> bytes:
    content = read_bytes_file(path, MAX_BYTES)
    if content[:2] == _GZIP_MAGIC:
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
                content = stream.read(MAX_BYTES + 1)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(
                f"{path} cannot be unpacked ({error}); it is truncated or corrupt, fetch it again."
            ) from error
    if len(content) > MAX_BYTES:
        raise ValueError(f"{path} unpacks to more than {MAX_BYTES} bytes, which no file of MNIST does; fetch it again.")
    return content
