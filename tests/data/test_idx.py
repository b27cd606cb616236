import gzip
import hashlib
import struct

import numpy as np
import pytest

from pfdl.data.idx import read_idx

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


def idx_bytes(array, kind=8):
    return bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_it_reads_plain_and_gzipped_files(tmp_path, compress):
    path = tmp_path / "images"
    path.write_bytes(compress(idx_bytes(IMAGES)))
    np.testing.assert_array_equal(read_idx(path, 3, hashlib.md5(idx_bytes(IMAGES)).hexdigest()), IMAGES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not start like an idx file"),
        (b"\0\0", "does not start like an idx file"),
        (b"PK\x03\x04 something else", "does not start like an idx file"),
        (idx_bytes(IMAGES, kind=13), "does not start like an idx file of bytes"),
        (idx_bytes(IMAGES)[:10], "ends inside its header, after 10 bytes"),
        (idx_bytes(IMAGES)[:-1], "has 23 bytes of data where its header promises 24"),
        (idx_bytes(IMAGES) + b"x", "has 25 bytes of data where its header promises 24"),
        (idx_bytes(IMAGES[:, 0, 0]), "holds 1-dimensional data where 3 are expected.*swapped"),
        (gzip.compress(idx_bytes(IMAGES), mtime=0)[:-10], "cannot be unpacked"),
        (gzip.compress(idx_bytes(IMAGES), mtime=0)[:-8] + b"\0" * 8, "cannot be unpacked"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\0garbage", "cannot be unpacked"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(tmp_path, content, message):
    path = tmp_path / "images"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"images .*{message}"):
        read_idx(path, 3)


def test_a_sound_file_with_other_content_is_refused(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(idx_bytes(IMAGES + 1))
    expected = hashlib.md5(idx_bytes(IMAGES)).hexdigest()
    with pytest.raises(ValueError, match=f"not the expected one .*instead of {expected}"):
        read_idx(path, 3, expected)
