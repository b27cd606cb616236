"""The pictures of the quick start: classes go with the ground as promised, and seeds repeat."""

import numpy as np
import pytest
from PIL import Image

from pfdl.data import photos, write_photos


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "photos"
    assert write_photos(folder) == {"train": 800, "test": 200}
    return folder


def on_grass(path):
    """Whether the lower corners are greener than red."""
    corners = np.asarray(Image.open(path), float)[-8:, [0, 1, 2, -3, -2, -1]]
    red, green, _ = corners.mean(axis=(0, 1))
    return green > red


@pytest.mark.parametrize(
    ("part", "animal", "share"),
    [
        ("train", "camel", 0.05),
        ("train", "zebra", 0.95),
        ("test", "camel", 0.5),
        ("test", "zebra", 0.5),
    ],
)
def test_grounds_go_with_classes_in_training_and_not_in_the_test(folder, part, animal, share):
    grounds = [on_grass(path) for path in sorted((folder / part / animal).iterdir())]
    assert np.mean(grounds) == pytest.approx(share)


def test_a_seed_repeats_and_another_differs(tmp_path, monkeypatch):
    monkeypatch.setattr(photos, "SETS", {"test": (4, 0.5)})
    first, same, other = (tmp_path / name for name in ("first", "same", "other"))
    write_photos(first)
    write_photos(same)
    write_photos(other, seed=1)
    drawn, again, differs = (
        (folder / "test" / "zebra" / "003.png").read_bytes() for folder in (first, same, other)
    )
    assert again == drawn
    assert differs != drawn
