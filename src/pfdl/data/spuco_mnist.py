"""SpuCoMNIST: pairs of digits as classes, and a colour that goes with the class in training but not
in the test.

The definition is that of "Towards Mitigating Spurious Correlations in the Wild: A Benchmark and a
more Realistic Dataset" (Joshi et al., 2023) and of its package SpuCo 2.0. No line of that package
is used here.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset

from pfdl._internal.validation import check_choice, check_count

COLORS = ((255, 0, 0), (209, 255, 0), (0, 255, 92), (0, 116, 255), (185, 0, 255))
"""The colour that each class mostly has in training, as bytes of red, green and blue: Matplotlib's
map hsv at 0, 0.2, 0.4, 0.6 and 0.8, as in the reference package."""

MAGNITUDES = {
    "large": 28,
    "medium": 4,
    "small": 2,
    "variance-low": 7,
    "variance-medium": 14,
    "variance-high": 28,
}
"""The side of the square at the top left whose black pixels take the colour."""

SCATTERED = ("variance-medium", "variance-high")
"""Where only as many pixels of the square take it as the one of variance-low has, drawn for each
image.
"""

KEPT_ABOVE = 0.25

VALIDATION_SHARE = 0.2

Digits = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""Grey digits as bytes, shape (n, 28, 28), and what they show, shape (n,), 0 to 9."""


class ColoredDigits(TensorDataset):
    """Digits in front of colours, as a dataset of (image, label, context).

    Attributes:
        images: Bytes, shape (n, 3, 28, 28).
        labels: The class, half of the digit, shape (n,), 0 to 4; some of them wrong if that was
            asked for.
        contexts: The colour, shape (n,), 0 to 4.
        clean_labels: The true class, shape (n,).
    """

    def __init__(
        self, images: Tensor, labels: Tensor, contexts: Tensor, clean_labels: Tensor
    ) -> None:
        super().__init__(images, labels, contexts)
        self.images = images
        self.labels = labels
        self.contexts = contexts
        self.clean_labels = clean_labels


class SpuCoMNIST:
    """Training, validation and test images of SpuCoMNIST.

    In the training images a share of each class, the strength, has the colour of its class; the
    rest has the other four colours in equal parts. In validation and test all 25 groups are equally
    frequent. The smaller the coloured square, the harder the colour is to see, for a model and for
    the inference of contexts.

    Args:
        digits: The folder in which ``torchvision.datasets.MNIST`` keeps MNIST; or digits for
            training and for the test, each as bytes of shape (n, 28, 28) and what they show, 0 to
            9, of shape (n,). By default scikit-learn's small digits, which are *not* MNIST.
        magnitude: ``"large"``, the colour fills the image; ``"medium"``, a square of 4×4 pixels;
            ``"small"``, 2×2. Or 49 pixels: ``"variance-low"``, a square of 7×7;
            ``"variance-medium"``, scattered over a quarter of the image; ``"variance-high"``, over
            all of it, both drawn again for each image.
        strength: Share of each class that has the class's own colour in training, from 0.2 (no
            correlation) to 1.
        label_noise: Share of the training images that get a wrong label; the colour goes with the
            right one.
        feature_noise: Share of the training images in which 60 % of the digit's pixels, at random,
            are lost.
        seed: The draw of validation images and of colours follows from it. Colours and noise of the
            same digits in the same order are those of SpuCo 2.0.3 at this seed; which digits are
            for validation is not.
        max_train: Use no more than this many training images.

    Attributes:
        train: Four fifths of the training digits.
        validation: The other fifth.
        test: The digits for the test, in their order.

    Raises:
        FileNotFoundError: If MNIST is not in the folder.
        ValueError: If a setting is out of range.

    Example:
        >>> from pfdl.data import SpuCoMNIST
        >>> data = SpuCoMNIST(magnitude="medium", strength=0.95)
        >>> len(data.train), len(data.validation), len(data.test)
        (1197, 300, 300)
        >>> share = (data.train.labels == data.train.contexts).float().mean()
        >>> bool(share > 0.94)
        True
    """

    def __init__(
        self,
        digits: str | Path | tuple[Digits, Digits] | None = None,
        *,
        magnitude: str = "large",
        strength: float = 0.95,
        label_noise: float = 0.0,
        feature_noise: float = 0.0,
        seed: int = 0,
        max_train: int | None = None,
    ) -> None:
        check_choice("magnitude", magnitude, MAGNITUDES)
        for name, share in {"label_noise": label_noise, "feature_noise": feature_noise}.items():
            if not 0 <= share <= 1:
                raise ValueError(
                    f"{name} is {share}; give a share of the training images, from 0 to 1."
                )
        if not 1 / len(COLORS) <= strength <= 1:
            raise ValueError(
                f"strength is {strength}; give the share of each class in its own colour, 0.2 to 1."
            )
        if max_train is not None:
            check_count("max_train", max_train, len(COLORS))
        (images, labels), test = _open_digits(digits)
        order = np.random.default_rng(seed).permutation(len(labels))
        cut = math.ceil(VALIDATION_SHARE * len(labels))
        held_out = order[:cut]
        train = order[cut:][:max_train]
        chosen = images[train], labels[train]
        self.train = color_digits(chosen, magnitude, strength, label_noise, feature_noise, seed)
        self.validation = color_digits((images[held_out], labels[held_out]), magnitude, seed=seed)
        self.test = color_digits(test, magnitude, seed=seed)


def _open_digits(digits: str | Path | tuple[Digits, Digits] | None) -> tuple[Digits, Digits]:
    if digits is None:
        images, labels = small_digits()
        tested = np.arange(1200, 1500)
        return (np.delete(images, tested, axis=0), np.delete(labels, tested)), (
            images[tested],
            labels[tested],
        )
    if isinstance(digits, tuple):
        return digits
    from torchvision.datasets import MNIST  # type: ignore[import-untyped]

    try:
        train, test = (MNIST(digits, train=is_train) for is_train in (True, False))
    except RuntimeError as error:
        raise FileNotFoundError(
            f"{digits} does not hold MNIST, unpacked in MNIST/raw;"
            f" torchvision.datasets.MNIST({str(digits)!r}, download=True) puts it there."
        ) from error
    return (train.data.numpy(), train.targets.numpy()), (test.data.numpy(), test.targets.numpy())


@cache
def small_digits() -> Digits:
    """Return scikit-learn's 1,797 digits of 8×8 pixels, enlarged threefold and framed to MNIST's
    28×28.
    """
    from sklearn.datasets import load_digits

    small, labels = load_digits(return_X_y=True)
    pixels = np.rint(small.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    images = np.pad(np.kron(pixels, np.ones((1, 3, 3), dtype=np.uint8)), ((0, 0), (2, 2), (2, 2)))
    return images, labels.astype(np.uint8)


def color_digits(
    digits: Digits,
    magnitude: str,
    strength: float | None = None,
    label_noise: float = 0.0,
    feature_noise: float = 0.0,
    seed: int = 0,
) -> ColoredDigits:
    """Give every digit a colour: by strength, or all colours equally often, and without noise, if
    that is None.

    Chance is drawn in the order of the reference package, so that the same seed gives the same
    images.
    """
    generator = torch.Generator().manual_seed(seed)
    choose = random.Random(seed)
    labels = torch.from_numpy((digits[1] // 2).astype(np.int64))
    if strength is None:
        label_noise = feature_noise = 0.0
    is_mislabelled = _some(len(labels), label_noise, generator)
    is_blurred = _some(len(labels), feature_noise, generator)
    told = labels.clone()
    contexts = torch.zeros_like(labels)
    images = torch.from_numpy(np.repeat(digits[0][:, None], 3, axis=1))
    colors = torch.tensor(COLORS, dtype=torch.uint8)[:, :, None, None]
    for label in dict.fromkeys(labels.tolist()):  # in the order in which they come
        rows = torch.nonzero(labels == label)[:, 0]
        others = [color for color in range(len(COLORS)) if color != label]
        contexts[rows] = _draw_contexts(len(rows), label, others, strength, generator)
        for row in rows.tolist():
            where = _colored_pixels(magnitude, generator)
            if is_blurred[row]:
                images[row] *= torch.randn(28, 28, generator=generator) > KEPT_ABOVE
            is_colored = where & (images[row] == 0)
            images[row] = torch.where(is_colored, colors[contexts[row]], images[row])
            if is_mislabelled[row]:
                told[row] = choose.choice(others)
    return ColoredDigits(images, told, contexts, labels)


def _draw_contexts(
    number: int,
    label: int,
    others: Sequence[int],
    strength: float | None,
    generator: torch.Generator,
) -> Tensor:
    """Draw the colours of so many images of a class."""
    if strength is None:
        colors = torch.arange(number) % len(COLORS)
    else:
        colors = torch.tensor(others)[torch.arange(number) % len(others)]
        colors[_some(number, strength, generator)] = label
    return colors[torch.randperm(number, generator=generator)]


def _some(number: int, share: float, generator: torch.Generator) -> Tensor:
    """Choose a share of so many samples."""
    chosen = torch.zeros(number, dtype=torch.bool)
    if not share:
        return chosen
    chosen[torch.randperm(number, generator=generator)[: int(share * number)]] = True
    return chosen


def _colored_pixels(magnitude: str, generator: torch.Generator) -> Tensor:
    """Return which pixels of an image take the colour where they are black, shape (28, 28)."""
    side = MAGNITUDES[magnitude]
    square = torch.ones(side**2, dtype=torch.bool)
    if magnitude in SCATTERED:
        square[torch.randperm(side**2, generator=generator)[MAGNITUDES["variance-low"] ** 2 :]] = (
            False
        )
    where = torch.zeros(28, 28, dtype=torch.bool)
    where[:side, :side] = square.view(side, side)
    return where
