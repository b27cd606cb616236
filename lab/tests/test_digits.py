import gzip
import hashlib
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from pfdl_lab import digits
from pfdl_lab.digits import find_digits, read_mnist

BESIDE_THE_REPOSITORY = Path(__file__).parents[3] / "shared" / "data" / "mnist"
OFFICIAL = Path(os.environ.get("PFDL_MNIST", BESIDE_THE_REPOSITORY))


def idx_bytes(array):
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def array_of(name):
    """60 training and 10 test digits; the labels count up, the images hold their row's number."""
    rows = 60 if name.startswith("train") else 10
    if "labels" in name:
        return (np.arange(rows) % 10).astype(np.uint8)
    return np.broadcast_to(np.arange(rows, dtype=np.uint8)[:, None, None], (rows, 28, 28))


@pytest.fixture
def tiny_mnist(tmp_path, monkeypatch):
    """The four files in miniature, and the table of checksums to go with them."""
    monkeypatch.delenv("PFDL_MNIST", raising=False)
    files = {}
    for name in digits.MNIST_FILES:
        content = idx_bytes(np.ascontiguousarray(array_of(name)))
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
        files[name] = hashlib.md5(content).hexdigest()
    monkeypatch.setattr(digits, "MNIST_FILES", files)
    return tmp_path


def test_it_reads_the_four_files_where_the_environment_says(tiny_mnist, monkeypatch):
    monkeypatch.setenv("PFDL_MNIST", str(tiny_mnist))
    source = find_digits()
    assert (source.name, source.is_mnist) == ("MNIST", True)
    # The cut is at row 50,000
    assert (len(source.train), len(source.held_out), len(source.test)) == (
        60,
        10,
        0,
    )
    np.testing.assert_array_equal(source.train.images[:, 5, 5], np.arange(60))
    np.testing.assert_array_equal(source.held_out.labels, np.arange(10))


def test_uncompressed_files_in_torchvisions_layout_are_found(tiny_mnist, tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for packed in tiny_mnist.glob("*.gz"):
        (raw / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    assert len(read_mnist(tmp_path).train) == 60


def test_a_missing_file_is_named_with_the_remedy(tiny_mnist):
    (tiny_mnist / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"has no file t10k-labels-idx1-ubyte .*PFDL_MNIST.*download=True"
    ):
        find_digits(tiny_mnist)


def test_swapped_files_are_noticed(tiny_mnist):
    train, test = (
        tiny_mnist / "train-images-idx3-ubyte.gz",
        tiny_mnist / "t10k-images-idx3-ubyte.gz",
    )
    contents = train.read_bytes(), test.read_bytes()
    train.write_bytes(contents[1])
    test.write_bytes(contents[0])
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte\.gz .* swapped"):
        find_digits(tiny_mnist)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not MNIST's file"),
        (gzip.compress(b"another file", mtime=0), "is not MNIST's file"),
        (gzip.compress(bytes(1000), mtime=0)[:-10], "cannot be unpacked"),
        (gzip.compress(bytes(1000), mtime=0)[:-8] + b"\0" * 8, "cannot be unpacked"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\0garbage", "cannot be unpacked"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(tiny_mnist, content, message):
    (tiny_mnist / "train-labels-idx1-ubyte.gz").write_bytes(content)
    with pytest.raises(ValueError, match=rf"train-labels-idx1-ubyte\.gz {message}"):
        find_digits(tiny_mnist)


def test_without_a_folder_the_bundled_digits_are_used_and_keep_their_pixels(monkeypatch):
    monkeypatch.delenv("PFDL_MNIST", raising=False)
    small, labels = load_digits(return_X_y=True)
    source = find_digits()
    assert not source.is_mnist
    assert "not MNIST" in source.name
    assert [len(part) for part in (source.train, source.held_out, source.test)] == [1200, 300, 297]
    assert source.test.images.shape == (297, 28, 28)
    np.testing.assert_array_equal(source.test.labels, labels[1500:])
    centres = source.test.images[:, 3:27:3, 3:27:3].reshape(297, 64)
    np.testing.assert_allclose(centres, small[1500:] * 255 / 16, atol=0.5)
    assert source.test.images[:, :2].max() == 0


@pytest.mark.skipif(
    not OFFICIAL.is_dir(),
    reason="the official MNIST files are not here; name their folder in PFDL_MNIST",
)
def test_the_official_files_are_what_they_should_be():
    source = read_mnist(OFFICIAL)
    assert [len(part) for part in (source.train, source.held_out, source.test)] == [
        50_000,
        10_000,
        10_000,
    ]
    assert np.bincount(source.held_out.labels).tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]
    assert source.train.labels[:5].tolist() == [5, 0, 4, 1, 9]
