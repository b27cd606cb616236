import pytest
import torch

from pfdl.vision.pixels import MEAN, STD, draw_shifts, mirror_and_shift, normalise


def test_bytes_are_normalised_and_numbers_left_alone():
    images = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    result = normalise(images)
    for channel in range(3):
        expected = (images[:, channel].double() / 255 - MEAN[channel]) / STD[channel]
        torch.testing.assert_close(result[:, channel].double(), expected, rtol=1e-5, atol=1e-5)
    assert normalise(result) is result


def test_each_image_is_mirrored_or_not_and_shifted_with_reflection():
    size, reach, count = 16, 2, 200
    grid = torch.arange(size * size).view(size, size)
    images = grid.expand(count, 3, size, size)
    padded = torch.nn.functional.pad(grid[None].float(), (reach,) * 4, mode="reflect")[0].long()
    allowed = {}
    for top in range(2 * reach + 1):
        for left in range(2 * reach + 1):
            crop = padded[top : top + size, left : left + size]
            allowed[tuple(crop.flatten().tolist())] = (top, left, False)
            allowed[tuple(crop.flip(1).flatten().tolist())] = (top, left, True)
    result = mirror_and_shift(images)
    assert torch.equal(result[:, 0], result[:, 2])
    seen = {allowed[tuple(image[0].flatten().tolist())] for image in result}
    assert {top for top, _, _ in seen} == {left for _, left, _ in seen} == set(range(5))
    assert {mirrored for _, _, mirrored in seen} == {False, True}


@pytest.mark.parametrize(("size", "reach"), [(64, 8), (96, 12), (224, 28)])
def test_shifts_reach_an_eighth_of_the_size_and_no_further(size, reach):
    torch.manual_seed(0)
    down, right, is_mirrored = draw_shifts(torch.empty(4000, 3, size, 2 * size)).T
    assert (int(down.min()), int(down.max())) == (-reach, reach)
    assert (int(right.min()), int(right.max())) == (-2 * reach, 2 * reach)
    assert 0.4 < float(is_mirrored.float().mean()) < 0.6
