"""Real images as they are published; skipped where they are not at hand."""

import tarfile
from pathlib import Path

import pandas as pd
import pytest

from pfdl.data import ContextImages, make_split, open_images

SHARED = Path(__file__).parents[3] / "shared" / "data"
PER_CELL = 14


def unpack(name, target):
    """The first images of every cell, and whatever else is in the archive."""
    archive = SHARED / f"{name}96.tar"
    if not archive.is_file():
        pytest.skip(f"{archive} is not at hand")
    taken = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            cell = member.name.rpartition("/")[0]
            taken[cell] = taken.get(cell, 0) + 1
            if member.isfile() and (taken[cell] <= PER_CELL or not member.name.endswith(".jpg")):
                tar.extract(member, target, filter="data")
    return target / name


@pytest.mark.parametrize(("name", "classes", "contexts"), [("pacs", 7, 4), ("petscapes", 8, 10)])
def test_published_folders_are_taken_as_they_are(tmp_path, name, classes, contexts):
    folder = open_images(unpack(name, tmp_path), layout=None if name == "pacs" else "class/context")
    manifest = make_split(folder)
    assert (len(manifest.classes), len(manifest.contexts)) == (classes, contexts)
    assert folder.bad_images == ()
    assert len(manifest.rows) > 0.9 * classes * contexts * PER_CELL
    images, labels, _ = ContextImages(folder, manifest, "train", size=64)[0]
    assert images.shape == (3, 64, 64)
    assert 0 <= labels < classes


def test_backgrounds_of_petscapes_stay_on_one_side(tmp_path):
    root = unpack("petscapes", tmp_path)
    meta = pd.read_csv(root / "meta.csv")
    meta[["label", "context", "name"]] = meta["path"].str.split("/", expand=True)
    meta = meta[[(root / path).is_file() for path in meta["path"]]]
    meta.to_csv(root / "grouped.csv", index=False)
    manifest = make_split(open_images(root / "grouped.csv", columns={"group": "background"}), ratio="1:1")
    background = dict(zip(meta["path"], meta["background"], strict=True))
    sides = {"train": set(), "test": set()}
    for row in manifest.rows:
        sides[row.side].add(background[row.path])
    assert sides["train"].isdisjoint(sides["test"])
    share = sum(row.side == "train" for row in manifest.rows) / len(manifest.rows)
    assert 0.55 < share < 0.65
