"""Images are described by what they are made of, not by where it is."""

import pytest
import torch
from torch.nn import functional as F

from pfdl import image_statistics
from pfdl.contexts.statistics import ImageStatistics, _filters


def naive(images, seed=0):
    """The definition, in float64, image by image and filter by filter."""
    x = images.double()
    x = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True, correction=0)
    rows = []
    for image in x:
        maps = image
        found = []
        for level, bank in enumerate(_filters(images.shape[1], seed)):
            if level:
                maps = F.avg_pool2d(maps, 2)
            maps = torch.stack(
                [
                    F.conv2d(maps[None], one[None].double(), padding=1)[0, 0].clamp(min=0)
                    for one in bank
                ]
            )
            found += [maps.mean((1, 2)), maps.std((1, 2), correction=0)]
        rows.append(torch.cat(found))
    return torch.stack(rows)


@pytest.mark.parametrize("channels", [2, 3])
def test_it_is_its_definition_whatever_the_batch(channels, monkeypatch):
    monkeypatch.setattr("pfdl.contexts.statistics.BATCH", 3)
    monkeypatch.setattr("pfdl.contexts.statistics.PIXELS_ON_CPU", 3 * 9 * 8)
    images = torch.randint(
        256, (7, channels, 9, 8), generator=torch.Generator().manual_seed(0)
    ).byte()
    before = torch.get_rng_state()
    found = image_statistics(images)
    assert torch.equal(torch.get_rng_state(), before)
    assert found.shape == (7, 384)
    torch.testing.assert_close(found.double(), naive(images), rtol=1e-4, atol=1e-5)
    assert torch.equal(image_statistics(images.numpy()), found)
    assert not torch.allclose(found, image_statistics(images, seed=1))


def test_a_constant_channel_is_no_trouble():
    images = torch.rand(4, 3, 8, 8)
    images[:, 1] = 0.5
    assert torch.isfinite(image_statistics(images)).all()


@pytest.mark.parametrize("shape", [(4, 3, 8), (4, 3, 2, 8), (0, 3, 8, 8)])
def test_what_is_no_image_is_refused(shape):
    with pytest.raises(ValueError, match="give \\(n, channels, height, width\\)"):
        image_statistics(torch.zeros(shape))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_images_that_are_not_finite_are_refused(value):
    images = torch.rand(5, 3, 8, 8)
    describe = ImageStatistics.fit([images])
    images[3, 1, 2, 2] = value
    for describe_all in (describe, image_statistics):
        with pytest.raises(ValueError, match="NaN or infinite; give finite ones"):
            describe_all(images)


def test_large_images_are_shrunk_first(monkeypatch):
    monkeypatch.setattr("pfdl.contexts.statistics.LARGEST", 8)
    images = torch.rand(2, 3, 27, 35, generator=torch.Generator().manual_seed(0))
    scaled = (images - images.mean((0, 2, 3), keepdim=True)) / images.std(
        (0, 2, 3), keepdim=True, correction=0
    )
    shrunk = F.avg_pool2d(scaled, 3)
    expected = ImageStatistics(
        tuple(_filters(3, 0)), torch.zeros(1, 3, 1, 1), torch.ones(1, 3, 1, 1)
    )(shrunk)
    torch.testing.assert_close(image_statistics(images), expected, rtol=1e-4, atol=1e-5)


def test_batches_must_have_the_channels_of_the_first():
    describe = ImageStatistics.fit([torch.rand(2, 3, 8, 8)])
    with pytest.raises(ValueError, match="images have 1 channels; the filters are for 3"):
        describe(torch.rand(2, 1, 8, 8))
    with pytest.raises(ValueError, match="1 channels after others had 3"):
        ImageStatistics.fit([torch.rand(2, 3, 8, 8), torch.rand(2, 1, 8, 8)])
    with pytest.raises(ValueError, match="there are no images"):
        ImageStatistics.fit([])
