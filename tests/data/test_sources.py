import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from pfdl.cli.main import main
from pfdl.data import open_images
from pfdl.data.images import check_relative, hash_bytes, path_inside, to_tensor
from pfdl.data.sources import ImageFiles
from tests.data.image_files import encoded, grid, make_folder, noise
from tests.processes import Forked


def listed(folder):
    return [
        (sample.path, sample.class_name, sample.context, sample.split) for sample in folder.samples
    ]


def test_folders_are_classes_and_contexts(tmp_path):
    make_folder(tmp_path, {"dog/grass": 1, "cat/snow": 1})
    folder = open_images(tmp_path)
    assert listed(folder) == [
        ("cat/snow/000.png", "cat", "snow", ""),
        ("dog/grass/000.png", "dog", "grass", ""),
    ]
    assert folder.samples[0].sha256 == hash_bytes((tmp_path / "cat/snow/000.png").read_bytes())


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (("train", "test"), ("train", "test")),
        (("Training", "Validation", "Testing"), ("train", "validation", "test")),
        (("train", "valid"), ("train", "validation")),
        (("test",), ("test",)),
    ],
)
def test_sets_of_the_data_are_never_taken_for_classes(tmp_path, names, splits):
    make_folder(tmp_path, grid(names, ("cat", "dog")))
    expected = []
    for name, split in zip(names, splits, strict=True):
        expected += [(f"{name}/{label}/000.png", label, "", split) for label in ("cat", "dog")]
    assert listed(open_images(tmp_path)) == sorted(expected)


def test_sets_may_have_contexts_and_one_of_them_may_have_none(tmp_path):
    make_folder(tmp_path, {"train/cat": 1, "train/dog": 1, "test/cat/snow": 1, "test/dog/grass": 1})
    assert listed(open_images(tmp_path)) == [
        ("test/cat/snow/000.png", "cat", "snow", "test"),
        ("test/dog/grass/000.png", "dog", "grass", "test"),
        ("train/cat/000.png", "cat", "", "train"),
        ("train/dog/000.png", "dog", "", "train"),
    ]


def test_a_class_may_be_called_train_beside_others(tmp_path):
    make_folder(tmp_path, {"train/snow": 1, "truck/snow": 1, "boat/snow": 1})
    assert [name for _, name, *_ in listed(open_images(tmp_path))] == ["boat", "train", "truck"]
    make_folder(tmp_path / "flat", {"test": 1, "exam": 1})
    assert [name for _, name, *_ in listed(open_images(tmp_path / "flat"))] == ["exam", "test"]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            {"train/cat": 1, "test/cat": 1, "extra/cat": 1},
            "'test', 'train', which look like .* beside 'extra'",
        ),
        (
            {"train": 2, "test": 2},
            "holds no images in a known layout.* CSV file with the columns path and label",
        ),
        ({"val/cat": 1, "valid/cat": 1, "train/cat": 1}, "two mean the same set"),
        ({}, "no images in a known layout"),
        ({"a/b/c/d": 2, "a/b/c/e": 2}, "no images in a known layout"),
        ({"cat": 3}, "one class 'cat'"),
    ],
)
def test_folders_that_cannot_be_understood_are_refused(tmp_path, cells, message):
    make_folder(tmp_path, cells)
    with pytest.raises(ValueError, match=message):
        _ = open_images(tmp_path).samples


def test_of_several_superclasses_one_is_to_be_given(tmp_path):
    make_folder(
        tmp_path,
        {"Animal/dog/grass": 1, "Animal/cat/snow": 1, "Vehicle/car/road": 1, "Vehicle/bus/road": 1},
    )
    with pytest.raises(ValueError, match=r"give one of its folders, such as .*Animal\.$"):
        _ = open_images(tmp_path).samples
    assert listed(open_images(tmp_path / "Vehicle")) == [
        ("bus/road/000.png", "bus", "road", ""),
        ("car/road/000.png", "car", "road", ""),
    ]


def test_read_me_files_hidden_files_and_litter_are_passed_over(tmp_path):
    make_folder(tmp_path, {"cat/snow": 1, "dog/snow": 1, "cat/.cache": 1, "__MACOSX/cat": 1})
    for name in ("README.txt", "meta.csv", "cat/snow/.DS_Store", "cat/snow/Thumbs.db"):
        (tmp_path / name).write_text("no image")
    assert len(listed(open_images(tmp_path))) == 2


def spoil(root):
    """One of everything that cannot be used; returns the reasons by path."""
    make_folder(root, {"cat/snow": 3, "dog/snow": 3})
    whole = encoded(noise(99, (64, 64)), "JPEG")
    (root / "cat/snow/cut.jpg").write_bytes(whole[:1000])
    (root / "cat/snow/empty.jpg").touch()
    (root / "cat/snow/page.jpg").write_text("<html>404</html>")
    (root / "cat/stray.png").write_bytes(encoded(noise(98)))
    (root / "dog/snow/broken_link.png").symlink_to("nowhere.png")
    (root / "dog/snow/loop.png").symlink_to("loop.png")
    outside = root.parent / "outside.png"
    outside.write_bytes(encoded(noise(97)))
    (root / "dog/snow/leaves.png").symlink_to(outside)
    (root / "dog/linked").symlink_to(root / "cat/snow")
    os.mkfifo(root / "dog/snow/pipe.png")
    return {
        "cat/snow/cut.jpg": "cannot be decoded",
        "cat/snow/empty.jpg": "is empty",
        "cat/snow/page.jpg": "is not an image",
        "cat/stray.png": "does not lie where",
        "dog/linked": "symbolic link to a folder",
        "dog/snow/broken_link.png": "cannot be read",
        "dog/snow/leaves.png": "outside the data folder",
        "dog/snow/loop.png": "cannot be",
        "dog/snow/pipe.png": "not a regular file",
    }


def test_all_unusable_files_are_named_in_one_error_or_left_out(tmp_path):
    reasons = spoil(tmp_path / "data")
    folder = open_images(tmp_path / "data", on_bad_image="skip")
    with pytest.raises(ValueError, match="--set on_bad_image=skip") as raised:
        _ = open_images(tmp_path / "data").samples
    for bad in folder.check().bad:
        assert reasons[bad.path] in bad.reason
        assert f"{bad.path!r} {bad.reason}" in str(raised.value)
    assert len(folder.samples) == 6
    assert [entry["path"] for entry in folder.description["left_out"]] == list(reasons)
    with pytest.raises(ValueError, match="'error', 'skip'"):
        open_images(tmp_path, on_bad_image="ignore")


def test_a_folder_that_is_itself_a_link_and_links_inside_it_are_read(tmp_path):
    make_folder(tmp_path / "real", {"cat": 1, "dog": 1})
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real/dog/same.png").symlink_to(tmp_path / "real/dog/000.png")
    _, first, second = open_images(tmp_path / "link").samples
    assert first.sha256 == second.sha256


def test_a_file_that_became_a_link_out_of_the_folder_is_not_read(tmp_path):
    root = make_folder(tmp_path / "data", {"cat/snow": 2, "dog/snow": 2})
    sample = open_images(root).samples[0]
    (root / sample.path).rename(tmp_path / "elsewhere.png")
    (root / sample.path).symlink_to(tmp_path / "elsewhere.png")
    with pytest.raises(ValueError, match="a symbolic link to a place outside the data folder"):
        open_images(root).load(sample.path, 6, sample.sha256)


def test_names_of_other_scripts_and_of_great_length_are_read(tmp_path):
    name = "größe, «日本» \n" + "x" * 200 + ".png"
    make_folder(tmp_path, {"кот/снег": 1, "dog/snow": 1})
    (tmp_path / "кот/снег" / name).write_bytes(encoded(noise(50)))
    assert ("кот/снег/" + name, "кот", "снег", "") in listed(open_images(tmp_path))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has file names of any bytes")
def test_names_that_are_no_unicode_are_reported(tmp_path):
    make_folder(tmp_path, {"cat/snow": 1, "dog/snow": 1})
    (tmp_path / "cat/snow" / os.fsdecode(b"\xff.png")).write_bytes(encoded(noise(50)))
    odd = tmp_path / os.fsdecode(b"\xfe")
    make_folder(odd, {"snow": 1})
    bad = open_images(tmp_path, on_bad_image="skip").check().bad
    assert [entry.reason for entry in bad] == [
        "has a name that is not valid Unicode; rename it"
    ] * 2
    assert "\\xff" in bad[1].path or "udcff" in bad[1].path


def test_folders_that_may_not_be_listed_are_reported(tmp_path, monkeypatch):
    make_folder(tmp_path, {"cat/snow": 1, "dog/snow": 1, "dog/locked": 1})
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    bad = open_images(tmp_path, on_bad_image="skip").check().bad
    assert bad == (("dog/locked", "cannot be listed (Permission denied)"),)


def test_a_class_without_any_usable_image_is_an_error_even_when_skipping(tmp_path):
    make_folder(tmp_path, {"cat": 1, "dog": 1, "owl": 0})
    (tmp_path / "owl/empty.png").touch()
    with pytest.raises(ValueError, match="No usable image is left in 'owl'"):
        _ = open_images(tmp_path, on_bad_image="skip").samples


def split_slowly():
    """Run ``pfdl split`` where each file takes a tenth of a second, and count them."""
    folder, decoded_files = Path(sys.argv[1]), Path(sys.argv[2])
    examine = ImageFiles._examine

    def wait(self, file):
        with decoded_files.open("a") as stream:
            stream.write(f"{file.path}\n")
        time.sleep(0.1)
        return examine(self, file)

    ImageFiles._examine = wait
    sys.argv[1:] = ["split", str(folder), "-o", str(folder.parent / "manifest.csv")]
    main()


def test_after_a_signal_no_further_file_is_decoded(tmp_path):
    folder = make_folder(tmp_path / "photos", {"cat": 300, "dog": 300})
    log = tmp_path / "log"
    splitting = Forked(split_slowly, folder, log)
    while not log.exists():
        assert splitting.is_running
        time.sleep(0.01)
    os.kill(splitting.process.pid, signal.SIGTERM)
    begun = len(log.read_text().splitlines())
    assert splitting.finish() == 130, splitting.stderr
    assert "Stopped." in splitting.stderr
    # Each thread ends the file that it has, and at most one more was begun while the signal came
    assert len(log.read_text().splitlines()) <= begun + 2 * 8


def test_progress_is_told_by_files(tmp_path):
    make_folder(tmp_path, {"cat": 2, "dog": 1})
    calls = []
    open_images(tmp_path).check(lambda done, total: calls.append((done, total)))
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_load_reads_what_the_manifest_named_and_nothing_else(tmp_path):
    make_folder(tmp_path / "data", {"cat": 1, "dog": 1})
    (tmp_path / "secret.png").write_bytes(encoded(noise(5)))
    folder = open_images(tmp_path / "data")
    path, _, _, sha256, *_ = folder.samples[0]
    assert torch.equal(folder.load(path, 6, sha256), to_tensor(noise(1), 6))
    with pytest.raises(ValueError, match="not a path inside"):
        folder.load("../secret.png", 6, hash_bytes((tmp_path / "secret.png").read_bytes()))
    with pytest.raises(ValueError, match=r"'cat/none.png' in .* cannot be read"):
        folder.load("cat/none.png", 6, sha256)
    (tmp_path / "data" / path).write_bytes(encoded(noise(77)))
    with pytest.raises(ValueError, match="has changed since the manifest"):
        folder.load(path, 6, sha256)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../a.png",
        "cat/../../a.png",
        "C:/a.png",
        "c:a.png",
        "\\\\host\\a",
        "a\\..\\b",
        "a\0b",
    ],
)
def test_paths_that_could_leave_the_folder_are_refused(path, tmp_path):
    with pytest.raises(ValueError, match="not a path inside the data folder"):
        check_relative(path)
    with pytest.raises(ValueError, match="not a path inside the data folder"):
        path_inside(tmp_path, path)
    check_relative("..a/b..png")
