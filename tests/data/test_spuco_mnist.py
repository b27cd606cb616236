"""SpuCoMNIST is what its definition says."""

import struct

import numpy as np
import pytest
import torch

from pfdl.data.spuco_mnist import (
    COLORS,
    MAGNITUDES,
    SCATTERED,
    SpuCoMNIST,
    color_digits,
    small_digits,
)


@pytest.mark.parametrize("magnitude", sorted(set(MAGNITUDES) - set(SCATTERED)))
def test_black_pixels_of_the_square_take_the_colour(magnitude):
    data = SpuCoMNIST(magnitude=magnitude, strength=0.9, seed=4)
    side = MAGNITUDES[magnitude]
    grey = small_digits()[0][1200:1500]  # the test images keep their order
    for image, digit, color in zip(
        data.test.images[:50], grey[:50], data.test.contexts[:50], strict=True
    ):
        expected = np.stack([digit] * 3).astype(int)
        for row in range(side):
            for column in range(side):
                if digit[row, column] == 0:
                    expected[:, row, column] = COLORS[color]
        np.testing.assert_array_equal(image.numpy(), expected)


@pytest.mark.parametrize("strength", [0.2, 0.8, 0.995, 1.0])
def test_a_share_of_each_class_has_its_own_colour_and_the_others_are_even(strength):
    train = SpuCoMNIST(strength=strength).train
    for label in range(5):
        colors = torch.bincount(train.contexts[train.labels == label], minlength=5).tolist()
        total = sum(colors)
        own = colors.pop(label)
        assert own == int(strength * total)
        # Nearly: which samples keep theirs is drawn
        assert max(colors) - min(colors) <= 3 * (total / 4) ** 0.5


def test_validation_and_test_have_all_groups_alike_and_no_digit_twice():
    data = SpuCoMNIST(strength=0.95)
    for part in (data.validation, data.test):
        for label in range(5):
            colors = torch.bincount(part.contexts[part.labels == label], minlength=5)
            assert colors.max() - colors.min() <= 1
    assert len(data.train) + len(data.validation) == 1497
    image, label, context = data.train[3]
    assert image.shape == (3, 28, 28)
    assert image.dtype == torch.uint8
    assert (label, context) == (data.train.labels[3], data.train.contexts[3])


def test_the_draw_follows_from_the_seed():
    first, again, other = (SpuCoMNIST(seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.train.images, again.train.images)
    assert not torch.equal(first.train.labels, other.train.labels)
    assert len(SpuCoMNIST(max_train=100).train) == 100


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"magnitude": "huge"}, "magnitude is 'huge'"),
        ({"strength": 0.1}, "strength is 0.1"),
        ({"strength": float("nan")}, "strength is nan"),
        ({"max_train": 2}, "max_train is 2"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SpuCoMNIST(**settings)


@pytest.mark.parametrize(
    ("magnitude", "first", "black"),
    [
        ("medium", [1, 0, 1, 1, 2, 2, 3, 3, 4, 1, 4, 0], 211919),
        ("variance-low", [1, 0, 1, 1, 2, 2, 3, 3, 4, 1, 4, 0], 199569),
        ("variance-medium", [1, 0, 1, 1, 2, 2, 3, 3, 2, 2, 4, 0], 204754),
        ("variance-high", [1, 0, 1, 1, 4, 2, 3, 3, 3, 4, 4, 0], 204588),
    ],
)
def test_colours_and_noise_are_those_of_the_reference_package(magnitude, first, black):
    """Numbers by SpuCoMNIST of SpuCo 2.0.3 on the same 400 digits, strength 0.8, noises 0.05 and
    0.3, seed 7.

    There the images agreed with these to the rounding of the colours to bytes, and all labels and
    colours were equal.
    """
    some = tuple(part[:400] for part in small_digits())
    data = color_digits(some, magnitude, 0.8, 0.05, 0.3, seed=7)
    assert data.contexts[:12].tolist() == first
    assert int((data.images.sum(1) == 0).sum()) == black
    wrong = torch.nonzero(data.labels != data.clean_labels)[:, 0]
    assert len(wrong) == 20
    assert wrong[:5].tolist() == [15, 45, 62, 77, 88]
    assert data.labels[wrong[:5]].tolist() == [4, 0, 0, 3, 1]
    np.testing.assert_array_equal(data.clean_labels, some[1] // 2)


def test_noise_is_in_the_training_images_only():
    data = SpuCoMNIST(label_noise=0.1, feature_noise=0.5)
    assert (data.train.labels != data.train.clean_labels).float().mean().item() == pytest.approx(
        0.1, abs=0.002
    )
    for part in (data.validation, data.test):
        assert torch.equal(part.labels, part.clean_labels)
    with pytest.raises(ValueError, match=r"label_noise is 1.5; give a share"):
        SpuCoMNIST(label_noise=1.5)


def test_mnist_is_read_where_torchvision_keeps_it(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"unpacked in MNIST/raw; torchvision.*download=True"
    ):
        SpuCoMNIST(tmp_path)
    images, labels = small_digits()
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, rows in (("train", slice(1200)), ("t10k", slice(1200, 1500))):
        for kind, array in (("images-idx3", images[rows]), ("labels-idx1", labels[rows])):
            header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
            (raw / f"{name}-{kind}-ubyte").write_bytes(header + array.tobytes())
    data = SpuCoMNIST(tmp_path)
    assert (len(data.train), len(data.validation), len(data.test)) == (960, 240, 300)
    assert torch.equal(data.test.images, SpuCoMNIST().test.images)
