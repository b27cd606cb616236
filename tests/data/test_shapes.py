from collections import Counter
from itertools import product

import pytest
import torch

from pfdl.data import ContextImages, Shapes, make_split
from pfdl.data.shapes import OUTLINES, RECIPE, TEXTURES

MEAN_COLOURS = [
    [159.4, 96.2, 88.7],
    [115.7, 118.2, 138.5],
    [155.4, 184.4, 198.4],
    [183.9, 114.9, 140.7],
    [185.4, 133.3, 90.1],
    [107.6, 155.2, 146.6],
    [113.3, 151.6, 88.0],
    [83.8, 112.4, 175.5],
]


@pytest.fixture(scope="module")
def source():
    return Shapes(per_cell=20)


def cells(source):
    """The images of a source by class and context, shape (8, 8, per_cell, 3, 64 · 64)."""
    return source.images.float().view(8, 8, source.per_cell, 3, -1)


def test_eight_classes_stand_in_eight_contexts(source):
    cells = Counter((sample.class_name, sample.context) for sample in source.samples)
    assert cells == dict.fromkeys(product(OUTLINES, TEXTURES), 20)
    assert len(cells) == 64
    assert source.images.shape == (64 * 20, 3, 64, 64)


def test_no_two_images_are_alike(source):
    paths = [sample.path for sample in source.samples]
    assert paths == sorted(set(paths))
    assert len({image.numpy().tobytes() for image in source.images}) == len(source.samples)
    assert len({sample.sha256 for sample in source.samples}) == len(source.samples)


def test_images_that_changed_have_another_recipe(source):
    """Mean colours of one image of each class, as recipe shapes-1 draws them; with others the name
    must change.
    """
    images = cells(source).mean(-1)
    assert RECIPE == "shapes-1"
    assert torch.allclose(images[range(8), range(8), 1], torch.tensor(MEAN_COLOURS), atol=0.5)


def test_images_follow_from_the_seed(source):
    few = Shapes(per_cell=3)
    assert torch.equal(few.images, source.images.view(64, 20, 3, 64, 64)[:, :3].flatten(0, 1))
    assert not torch.equal(few.images, Shapes(per_cell=3, seed=1).images)


def test_the_strength_tells_the_context_by_mean_colour(source):
    """Nearest mean colour, fitted on one half and scored on the other: chance is one in eight."""

    def score(source):
        images = cells(source).mean(-1)
        means = images[:, :, :10].mean((0, 2))
        nearest = torch.cdist(images[:, :, 10:].reshape(-1, 3), means).argmin(1).view(8, 8, 10)
        return (nearest == torch.arange(8)[None, :, None]).float().mean().item()

    weak, middle, strong = map(score, (Shapes(20, strength=0), Shapes(20, strength=0.5), source))
    assert weak < 0.25
    assert weak < middle < strong
    assert strong > 0.6


def test_it_is_split_and_loaded_like_a_folder(source):
    manifest = make_split(source, ratio="5:1", seed=3)
    dataset = ContextImages(source, manifest, "test-1:5")
    row = manifest.rows_of("test-1:5")[0]
    index = [sample.path for sample in source.samples].index(row.path)
    assert torch.equal(dataset[0][0], source.images[index])
    parameters = {"per_cell": 20, "strength": 1.0, "seed": 0}
    assert manifest.parameters["source"] == {"kind": "shapes", "recipe": RECIPE, **parameters}


def test_other_sizes_are_scaled(source):
    sample = source.samples[0]
    small = source.load(sample.path, 32, sample.sha256)
    assert small.shape == (3, 32, 32)
    assert small.dtype == torch.uint8
    assert abs(small.float().mean() - source.images[0].float().mean()) < 1


def test_the_manifest_of_other_images_is_refused(source):
    manifest = make_split(source)
    with pytest.raises(ValueError, match=r"here shapes-1, 0\.5 and 0"):
        ContextImages(Shapes(20, strength=0.5), manifest, "train")
    with pytest.raises(ValueError, match="'disc/rays/999999' is not the image"):
        source.load("disc/rays/999999", 64, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"per_cell": 1}, "per_cell is 1"),
        ({"strength": 1.5}, "strength is 1.5"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Shapes(**arguments)
