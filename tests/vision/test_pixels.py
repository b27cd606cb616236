from itertools import product

import pytest
import torch
from torchvision.models import ResNet18_Weights

from pfdl.vision.pixels import (
    MEAN,
    STD,
    crop_and_colour,
    draw_shifts,
    mirror_and_shift,
    normalise,
)


def test_bytes_are_normalised_and_numbers_left_alone():
    images = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    result = normalise(images)
    for channel in range(3):
        expected = (images[:, channel].double() / 255 - MEAN[channel]) / STD[channel]
        torch.testing.assert_close(result[:, channel].double(), expected, rtol=1e-5, atol=1e-5)
    assert normalise(result) is result


def test_images_are_normalised_as_for_networks_trained_on_imagenet():
    published = ResNet18_Weights.IMAGENET1K_V1.transforms()
    assert list(MEAN) == published.mean
    assert list(STD) == published.std


def pixels(image):
    return tuple(image.flatten().tolist())


def shifted_and_mirrored(image, reach):
    """Return how each outcome came about, by its pixels: the shifts, and whether it is mirrored."""
    size = len(image)
    padded = torch.nn.functional.pad(image[None].float(), (reach,) * 4, mode="reflect")[0].long()
    outcomes = {}
    for top, left in product(range(2 * reach + 1), repeat=2):
        crop = padded[top : top + size, left : left + size]
        outcomes[pixels(crop)] = (top, left, False)
        outcomes[pixels(crop.flip(1))] = (top, left, True)
    return outcomes


def test_each_image_is_mirrored_or_not_and_shifted_with_reflection():
    image = torch.arange(16 * 16).view(16, 16)
    outcomes = shifted_and_mirrored(image, reach=2)
    result = mirror_and_shift(image.expand(200, 3, 16, 16))
    assert torch.equal(result[:, 0], result[:, 2])
    tops, lefts, mirrored = zip(*(outcomes[pixels(one[0])] for one in result), strict=True)
    assert set(tops) == set(lefts) == set(range(5))
    assert set(mirrored) == {False, True}


@pytest.mark.parametrize(("size", "reach"), [(64, 8), (96, 12), (224, 28)])
def test_shifts_reach_an_eighth_of_the_size_and_no_further(size, reach):
    torch.manual_seed(0)
    down, right, is_mirrored = draw_shifts(torch.empty(4000, 3, size, 2 * size)).T
    assert (int(down.min()), int(down.max())) == (-reach, reach)
    assert (int(right.min()), int(right.max())) == (-2 * reach, 2 * reach)
    assert 0.4 < float(is_mirrored.float().mean()) < 0.6


def test_parts_of_images_are_cut_out_mirrored_and_coloured_a_little():
    torch.manual_seed(0)
    ramps = torch.linspace(50, 150, 32).byte().expand(200, 3, 24, 32)
    result = crop_and_colour(ramps)
    assert result.shape == ramps.shape
    assert result.dtype == torch.uint8
    left, right = result[:, 0, :, [0, -1]].float().mean(1).T
    assert 0.4 < (right > left).float().mean() < 0.6
    # At least 0.61 of the width is kept; brightness and contrast change by a fifth at most
    span = (right - left).abs()
    assert span.min() > 0.61 * 100 * 0.8**2 - 5
    assert span.max() < 100 * 1.2**2
    assert span.std() > 5
