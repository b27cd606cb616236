"""Images that are decoded once and shared by memory map."""

import numpy as np
import pytest
import torch

from pfdl.data import make_split
from pfdl.data.context_images import ContextImages
from pfdl.data.stored import INDEX, PIXELS, StoredImages, store_images
from tests.vision.tiny_images import TinySource


@pytest.fixture
def source():
    return TinySource(per_cell=12)


def test_stored_images_are_a_source_with_the_same_images(source, tmp_path):
    stored = StoredImages(store_images(source, tmp_path / "images", 8))
    assert stored.samples == source.samples
    assert stored.description == source.description
    for sample in source.samples:
        assert torch.equal(stored.load(sample.path, 8, sample.sha256), source.pictures[sample.path])
    split = make_split(source, ratio="2:1", seed=3)
    assert make_split(stored, ratio="2:1", seed=3) == split
    images = stored.take([row.path for row in split.rows_of("test")])
    assert torch.equal(images, ContextImages(source, split, "test", size=8).images)


def test_the_pixels_are_mapped_and_not_copied_by_a_dataset(source, tmp_path):
    stored = StoredImages(store_images(source, tmp_path / "images", 8))
    assert isinstance(stored._pixels, np.memmap)
    split = make_split(source, ratio="2:1")
    assert ContextImages(stored, split, "train", size=8)._cache is None
    assert ContextImages(source, split, "train", size=8)._cache is not None


def test_what_is_stored_is_decoded_once_and_other_images_again(source, tmp_path, monkeypatch):
    folder = store_images(source, tmp_path / "images", 8)
    calls, load = [], TinySource.load
    monkeypatch.setattr(TinySource, "load", lambda self, path, *rest: calls.append(path) or load(self, path, *rest))
    store_images(source, folder, 8)
    assert calls == []
    other = TinySource(per_cell=13)
    assert StoredImages(store_images(other, folder, 8)).samples == other.samples
    assert len(calls) == len(other.samples)


@pytest.mark.parametrize("name", [INDEX, PIXELS])
def test_what_a_kill_left_unfinished_is_decoded_again(name, source, tmp_path):
    folder = store_images(source, tmp_path / "images", 8)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    store_images(source, folder, 8)
    assert (folder / name).read_bytes() == content


def test_an_image_of_another_size_or_content_is_refused(source, tmp_path):
    stored = StoredImages(store_images(source, tmp_path / "images", 8))
    first = source.samples[0]
    for asked in ((first.path, 16, first.sha256), (first.path, 8, "0"), ("elsewhere", 8, first.sha256)):
        with pytest.raises(ValueError, match="is not stored in the size"):
            stored.load(*asked)
