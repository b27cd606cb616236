"""SpuCoMNIST: pairs of digits as classes, and a colour that goes with the class in training but not in the test.

The definition is that of "Towards Mitigating Spurious Correlations in the Wild: A Benchmark and a more Realistic
Dataset" (Joshi et al., 2023) and of its package SpuCo 2.0. No line of that package is used here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from pfdl._internal.validation import check_choice, check_count
from pfdl.data.digits import Digits, DigitSource, find_digits

COLORS = ((255, 0, 0), (209, 255, 0), (0, 255, 92), (0, 116, 255), (185, 0, 255))
"""The colour that each class mostly has in training, as bytes of red, green and blue: Matplotlib's map hsv at 0, 0.2,
0.4, 0.6 and 0.8, as in the reference package."""

MAGNITUDES = {"large": 28, "medium": 4, "small": 2}
"""The side of the square at the top left whose black pixels take the colour."""

VALIDATION_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class ColoredDigits(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """Digits in front of colours.

    Attributes:
        images: Bytes, shape (n, 3, 28, 28).
        labels: The class, half of the digit, shape (n,), 0 to 4.
        contexts: The colour, shape (n,), 0 to 4.
    """

    images: Tensor
    labels: Tensor
    contexts: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.images[row], self.labels[row], self.contexts[row]


class SpuCoMNIST:
    """Training, validation and test images of SpuCoMNIST.

    In the training images a share of each class, the strength, has the colour of its class; the rest has the other four
    colours in equal parts. In validation and test all 25 groups are equally frequent. The smaller the coloured square,
    the harder the colour is to see, for a model and for the inference of contexts.

    Args:
        digits: Grey digits, or the folder of the four MNIST files, or nothing: then the environment variable
            ``PFDL_MNIST`` names the folder, and without it scikit-learn's small digits are used, which are *not*
            MNIST (``source.is_mnist`` and ``source.name`` say so).
        magnitude: ``"large"``, the colour fills the image; ``"medium"``, a square of 4×4 pixels; ``"small"``, 2×2.
        strength: Share of each class that has the class's own colour in training, from 0.2 (no correlation) to 1.
        seed: The draw of validation images and of colours follows from it.
        max_train: Use no more than this many training images.

    Attributes:
        source: The grey digits.
        train: Four fifths of the training digits.
        validation: The other fifth.
        test: MNIST's test file, or the digits held out of scikit-learn's.

    Raises:
        FileNotFoundError, ValueError: If files are missing or damaged, or a setting is out of range.

    Example:
        >>> from pfdl.data.digits import bundled_digits
        >>> data = SpuCoMNIST(bundled_digits(), magnitude="medium", strength=0.95)
        >>> len(data.train), len(data.validation), len(data.test)
        (1197, 300, 300)
        >>> share = (data.train.labels == data.train.contexts).float().mean()
        >>> bool(share > 0.94)
        True
    """

    def __init__(
        self,
        digits: DigitSource | str | Path | None = None,
        *,
        magnitude: str = "large",
        strength: float = 0.95,
        seed: int = 0,
        max_train: int | None = None,
    ) -> None:
        check_choice("magnitude", magnitude, MAGNITUDES)
        if not (math.isfinite(strength) and 1 / len(COLORS) <= strength <= 1):
            raise ValueError(f"strength is {strength}; give the share of each class in its own colour, 0.2 to 1.")
        if max_train is not None:
            check_count("max_train", max_train, len(COLORS))
        self.source = digits if isinstance(digits, DigitSource) else find_digits(digits)
        self.magnitude, self.strength = magnitude, strength
        rng = np.random.default_rng(seed)
        everything = _joined(self.source.train, self.source.test)
        order = rng.permutation(len(everything))
        cut = math.ceil(VALIDATION_SHARE * len(everything))
        validation, train = _rows(everything, order[:cut]), _rows(everything, order[cut:][:max_train])
        self.train = _color(train, magnitude, strength, rng)
        self.validation = _color(validation, magnitude, None, rng)
        self.test = _color(self.source.held_out, magnitude, None, rng)


def _joined(first: Digits, second: Digits) -> Digits:
    images, labels = ((first.images, second.images), (first.labels, second.labels))
    return Digits(np.concatenate(images), np.concatenate(labels))


def _rows(digits: Digits, rows: NDArray[np.intp]) -> Digits:
    return Digits(digits.images[rows], digits.labels[rows])


def _color(digits: Digits, magnitude: str, strength: float | None, rng: np.random.Generator) -> ColoredDigits:
    """Give every digit a colour: by strength, or all colours equally often if that is None."""
    labels = (digits.labels // 2).astype(np.intp)
    contexts = np.zeros(len(labels), dtype=np.intp)
    for label in range(len(COLORS)):
        rows = rng.permutation(np.flatnonzero(labels == label))
        own = 0 if strength is None else int(strength * len(rows))
        others = [color for color in range(len(COLORS)) if strength is None or color != label]
        contexts[rows[:own]] = label
        contexts[rows[own:]] = np.resize(others, len(rows) - own)
    side = MAGNITUDES[magnitude]
    images = np.repeat(digits.images[:, None], 3, axis=1)
    corner = images[:, :, :side, :side]  # a view, so that what is written to it reaches the images
    color = np.array(COLORS, dtype=np.uint8)[contexts][:, :, None, None]
    np.copyto(corner, np.broadcast_to(color, corner.shape), where=corner == 0)
    return ColoredDigits(torch.from_numpy(images), torch.from_numpy(labels), torch.from_numpy(contexts))
