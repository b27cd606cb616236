"""What files say of a class, and where contexts stand."""

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import chi2_contingency

from pfdl.data import make_split, open_images
from pfdl.vision.places import map_contexts
from pfdl.vision.properties import find_properties


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Cats are wide, dogs come from another camera; both are noise of the same brightness."""
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (root / name).mkdir()
        for number in range(60):
            shape = (24, 40, 3) if name == "cat" else (24, 24, 3)
            image = Image.fromarray(rng.integers(0, 255, shape, dtype=np.uint8))
            exif = Image.Exif()
            exif[0x0110] = "Kodak" if name == "dog" else "Leica"
            exif[0x0132] = f"20{10 + number % 5}:05:01 10:00:00"
            prefix = "IMG" if number % 2 else "DSC"
            image.save(root / name / f"{prefix}_{number}.jpg", exif=exif, quality=90)
    return root


@pytest.fixture(scope="module")
def found(photos):
    """The properties of the photos by their names, in their order."""
    source = open_images(photos)
    properties = find_properties(source, make_split(source, seed=0).rows)
    return {one.name: one for one in properties}


def test_a_number_that_goes_with_the_class_is_found(found):
    assert found["aspect"].strength == pytest.approx(1)
    assert found["aspect"].by_class == {"cat": "1.67", "dog": "1"}


def test_a_word_that_goes_with_the_class_is_found(found):
    assert found["camera"].matters
    assert found["camera"].by_class == {"cat": "Leica (100 %)", "dog": "Kodak (100 %)"}
    assert "camera: cat Leica (100 %), dog Kodak (100 %)" in found["camera"].sentence()


@pytest.mark.parametrize("name", ["date", "prefix of the file's name", "brightness", "hue"])
def test_what_goes_with_the_class_by_chance_does_not_matter(found, name):
    assert not found[name].matters
    assert found[name].images == 120


@pytest.mark.parametrize("side", ["top", "bottom", "left", "right"])
def test_a_frame_counts_on_all_four_sides(side):
    places = {"top": np.s_[:, :2], "bottom": np.s_[:, -2:], "left": np.s_[..., :2]}
    place = places.get(side, np.s_[..., -2:])
    generator = torch.Generator().manual_seed(0)
    images = []
    for number in range(80):
        image = torch.randint(256, (3, 64, 64), generator=generator).byte()
        image[place] = 0 if number % 2 else 255
        images.append((image, number % 2))
    source = open_images(images)
    properties = find_properties(source, make_split(source, seed=0).rows, 64)
    (border,) = (test for test in properties if test.name == "brightness of the border")
    assert border.strength > 0.9


def test_what_is_the_same_for_all_is_left_out_and_the_strongest_comes_first(found):
    assert "folder" not in found
    strengths = [one.strength for one in found.values()]
    assert strengths == sorted(strengths, reverse=True)


def test_the_chance_allows_for_all_properties_that_are_tested(found):
    alone = chi2_contingency([[60, 0], [0, 60]], correction=False).pvalue
    assert alone < found["width"].chance <= len(found) * alone * 1.001


def test_over_many_draws_of_noise_hardly_anything_is_said():
    class Noise:
        def __init__(self, seed):
            self.rng = np.random.default_rng(seed)

        def load(self, path, size, sha256):
            pixels = self.rng.integers(0, 255, (3, size, size), dtype=np.uint8)
            return torch.from_numpy(pixels)

    rows = make_rows(80)
    alarms = [
        any(one.matters for one in find_properties(Noise(seed), rows, 8)) for seed in range(30)
    ]
    assert sum(alarms) <= 2


def make_rows(count):
    from pfdl.data.manifest import ManifestRow

    return [
        ManifestRow(f"{number}", ("cat", "dog")[number % 2], "", "0" * 64, "train", ("train",))
        for number in range(count)
    ]


class Marked:
    """Noise with a white mark in the upper left corner in one context."""

    def __init__(self, count=120):
        generator = torch.Generator().manual_seed(0)
        self.labels = ["cat", "dog"] * (count // 2)
        self.contexts = ["marked" if number % 4 < 2 else "plain" for number in range(count)]
        self.images = torch.randint(0, 200, (count, 3, 28, 28), generator=generator)
        marked = torch.tensor([context == "marked" for context in self.contexts])
        self.images[marked, :, :4, :4] = 255

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index].to(torch.uint8), 0, 0


def test_a_mark_in_a_corner_is_seen_where_it_is():
    images = Marked()
    shares = map_contexts(images, images.labels, images.contexts)
    assert shares.shape == (7, 7)
    assert shares[0, 0] > 0.9
    shares[0, 0] = 0
    assert shares.max() < 0.2


def test_without_two_contexts_in_a_class_there_is_no_map():
    images = Marked(40)
    assert map_contexts(images, images.labels, images.labels) is None
