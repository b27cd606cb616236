import numpy as np
import pytest
import torch

from pfdl_lab.colored_mnist.environments import ColoredMNIST, color_digits
from pfdl_lab.digits import Digits, DigitSource


def many_digits(n, seed=0):
    generator = np.random.default_rng(seed)
    # No pixel is zero, so that the empty channel can be told from the full one.
    return Digits(
        generator.integers(1, 256, (n, 28, 28), dtype=np.uint8),
        generator.integers(0, 10, n, dtype=np.uint8),
    )


@pytest.fixture(scope="module")
def source():
    return DigitSource(
        "noise", many_digits(8000, 1), many_digits(1000, 2), many_digits(2000, 3), is_mnist=False
    )


def published_environment(digits, color_flip, label_noise, color_noise):
    """IRM's construction, step by step, given the uniform random numbers that decide the flips."""
    images = torch.from_numpy(digits.images.copy()).reshape((-1, 28, 28))[:, ::2, ::2]
    labels = (torch.from_numpy(digits.labels.astype(np.int64)) < 5).float()
    labels = (labels - (label_noise < 0.25).float()).abs()
    colors = (labels - (color_noise < color_flip).float()).abs()
    images = torch.stack([images, images], dim=1)
    images[torch.arange(len(images)), (1 - colors).long(), :, :] *= 0
    return images.float() / 255.0, labels


def test_an_environment_is_built_as_irm_builds_it():
    digits = many_digits(50)
    ours = color_digits(digits, 0.2, torch.Generator().manual_seed(3))
    same = torch.Generator().manual_seed(3)
    images, labels = published_environment(
        digits, 0.2, torch.rand(50, generator=same), torch.rand(50, generator=same)
    )
    torch.testing.assert_close(ours.images, images)
    torch.testing.assert_close(ours.labels, labels)


def test_the_three_environments_are_disjoint_parts_of_their_digits(source):
    data = ColoredMNIST(source, seed=7)
    environments = (*data.train, *data.held_out, data.test)
    assert [one.color_flip for one in environments] == [0.2, 0.1, 0.2, 0.1, 0.9]
    assert [len(one) for one in environments] == [4000, 4000, 500, 500, 2000]
    shapes = torch.cat([environment.images.sum(1) for environment in data.train]).flatten(1)
    original = torch.from_numpy(source.train.images[:, ::2, ::2].copy()).float().flatten(1) / 255
    np.testing.assert_allclose(np.sort(shapes.sum(1)), np.sort(original.sum(1)), rtol=1e-5)


@pytest.mark.parametrize(("max_train", "each"), [(100, 50), (101, 50), (2, 1), (10**6, 4000)])
def test_a_subsample_is_split_evenly(source, max_train, each):
    assert [
        len(environment) for environment in ColoredMNIST(source, max_train=max_train).train
    ] == [each, each]
    with pytest.raises(ValueError, match="max_train is 1; it must be at least 2"):
        ColoredMNIST(source, max_train=1)
