import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from pfdl.data import ContextImages, context_images, make_split, open_images
from pfdl.data.context_images import HIDDEN_CONTEXT, INDEX, PIXELS, StoredImages, store_images
from tests.data.image_files import encoded, grid, make_folder, noise
from tests.processes import Forked
from tests.vision.tiny_images import TinySource


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    cells = grid(("cat", "dog"), ("on grass", "on snow", "in town"), count=20)
    return open_images(make_folder(tmp_path_factory.mktemp("data"), cells))


@pytest.fixture(scope="module")
def manifest(folder):
    return make_split(folder, ratio="5:1")


@pytest.mark.parametrize("cache", [True, False])
def test_items_are_the_images_of_the_set_with_their_names_as_numbers(folder, manifest, cache):
    dataset = ContextImages(folder, manifest, "test-1:1", size=6, cache=cache)
    rows = manifest.rows_of("test-1:1")
    assert len(dataset) == len(rows)
    for row, (image, label, context) in zip(rows, dataset, strict=False):
        assert torch.equal(image, folder.load(row.path, 6, row.sha256))
        assert (manifest.classes[label], manifest.contexts[context]) == (
            row.class_name,
            row.context,
        )


@pytest.mark.parametrize("name", ["train", "validation"])
def test_contexts_are_hidden_from_training_unless_asked_for(folder, manifest, name):
    hidden = ContextImages(folder, manifest, name, size=6)
    assert {context for _, _, context in map(hidden.__getitem__, range(len(hidden)))} == {
        HIDDEN_CONTEXT
    }
    assert set(hidden.contexts.tolist()) == {HIDDEN_CONTEXT}
    shown = ContextImages(folder, manifest, name, size=6, reveal_contexts=True)
    assert [manifest.contexts[index] for index in shown.contexts] == [
        row.context for row in manifest.rows_of(name)
    ]


def test_all_images_are_the_same_with_a_cache_which_large_sets_do_not_have(
    folder, manifest, monkeypatch
):
    kept, read = (
        ContextImages(folder, manifest, "train", size=6, cache=cache) for cache in (True, False)
    )
    assert torch.equal(kept.images, read.images)
    assert kept.images.shape == (len(kept), 3, 6, 6)
    assert kept.images is kept.images
    assert read.images is not read.images
    monkeypatch.setattr(context_images, "CACHE_LIMIT", len(kept) * 3 * 36)
    small, large = (ContextImages(folder, manifest, "train", size=size) for size in (6, 7))
    assert small.images is small.images
    assert large.images is not large.images


def test_a_source_is_asked_once_before_it_is_asked_by_many(folder, manifest):
    calls = []

    class Slow:
        def load(self, path, size, sha256):
            calls.append(("starts", path))
            image = folder.load(path, size, sha256)
            calls.append(("ends", path))
            return image

    ContextImages(Slow(), manifest, "train", size=6)
    first = manifest.rows_of("train")[0].path
    assert calls[:2] == [("starts", first), ("ends", first)]
    paths = [row.path for row in manifest.rows_of("train")]
    assert sorted(calls) == sorted(product(("starts", "ends"), paths))


def test_a_file_changed_since_the_split_stops_the_run_before_it_starts(tmp_path):
    folder = open_images(make_folder(tmp_path, {"cat": 10, "dog": 10}))
    manifest = make_split(folder)
    path = manifest.rows_of("train")[-1].path
    (tmp_path / path).write_bytes(encoded(noise(999)))
    with pytest.raises(ValueError, match=f"'{path}' in .* has changed since the manifest"):
        ContextImages(folder, manifest, "train", size=6)


def test_a_manifest_serves_without_another_look_at_the_folder(folder, manifest, monkeypatch):
    monkeypatch.setattr(
        "pfdl.data.opening.list_folder", lambda *_: pytest.fail("the folder was scanned")
    )
    fresh = open_images(folder.root)
    assert len(ContextImages(fresh, manifest, "test", size=6)) == len(manifest.rows_of("test"))


def test_it_works_with_a_loader_and_workers(folder, manifest):
    dataset = ContextImages(folder, manifest, "test", size=6, cache=False)
    batches = list(torch.utils.data.DataLoader(dataset, batch_size=16, num_workers=1))
    assert torch.equal(torch.cat([images for images, _, _ in batches]), dataset.images)
    assert torch.equal(torch.cat([labels for _, labels, _ in batches]), dataset.labels)


def test_wrong_arguments(folder, manifest):
    with pytest.raises(ValueError, match="size is 0"):
        ContextImages(folder, manifest, "train", size=0)
    with pytest.raises(ValueError, match="no set 'testing'"):
        ContextImages(folder, manifest, "testing")


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
    calls = []
    load = TinySource.load
    monkeypatch.setattr(
        TinySource, "load", lambda self, path, *rest: calls.append(path) or load(self, path, *rest)
    )
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
    for asked in (
        (first.path, 16, first.sha256),
        (first.path, 8, "0"),
        ("elsewhere", 8, first.sha256),
    ):
        with pytest.raises(ValueError, match="is not stored in the size"):
            stored.load(*asked)


def store():
    try:
        store_images(TinySource(), Path(sys.argv[1]), 8)
    except OSError as error:
        print(error)


def test_a_disk_that_is_full_is_an_error_and_not_the_end_of_python(tmp_path):
    mounted = ["mount", "-t", "tmpfs", "-o", "size=8192", "tmpfs", tmp_path]
    if shutil.which("mount") is None or subprocess.run(mounted, capture_output=True).returncode:
        pytest.skip("only the administrator may mount a file system")
    try:
        stored = Forked(store, tmp_path / "stored")
        assert stored.finish() == 0
        assert "No space left on device" in stored.stdout
        assert not list((tmp_path / "stored").iterdir())
    finally:
        subprocess.run(["umount", tmp_path], check=True)
