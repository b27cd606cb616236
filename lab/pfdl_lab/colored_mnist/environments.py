"""Colored-MNIST: digits whose colour agrees with the label in training and disagrees in the test.

The protocol is that of "Invariant Risk Minimization" (Arjovsky et al., 2019) and of its published
code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pfdl._internal.validation import check_count
from pfdl_lab.digits import Digits, DigitSource, find_digits

LABEL_NOISE = 0.25
TRAIN_COLOR_FLIPS = (0.2, 0.1)
TEST_COLOR_FLIP = 0.9


@dataclass(frozen=True)
class Environment:
    """Coloured digits of one environment.

    Attributes:
        images: Shape (n, 2, 14, 14), red and green channel, 0 to 1; one of the two is all zero.
        labels: Shape (n,), 1. for digits below 5 and 0. for the others, a quarter of them flipped.
        color_flip: Probability that the colour disagrees with the label.
    """

    images: Tensor
    labels: Tensor
    color_flip: float

    def __len__(self) -> int:
        return len(self.labels)


class ColoredMNIST:
    """The environments of Colored-MNIST.

    The label says whether the digit is below 5, but a quarter of the labels are flipped; the colour
    is the label again, flipped with probability 0.2 and 0.1 in the two training environments and
    0.9 in the test environment. So colour predicts the label better than shape does, until it turns
    against it.

    Args:
        digits: Grey digits, or the folder of the four MNIST files, or nothing: then the environment
            variable ``PFDL_MNIST`` names the folder, and without it scikit-learn's small digits are
            used, which are *not* MNIST (``source.is_mnist`` and ``source.name`` say so).
        seed: Shuffling, label noise and colours follow from it.
        max_train: Use no more than this many rows for the two training environments together.

    Attributes:
        source: The grey digits.
        train: The two training environments, equally large.
        held_out: Further samples of the two training environments, never trained on: for choosing
            settings without a look at the test environment.
        test: The test environment.

    Raises:
        FileNotFoundError, ValueError: If the files are missing or damaged.

    Example:
        >>> from pfdl_lab.digits import bundled_digits
        >>> data = ColoredMNIST(bundled_digits(), seed=0)
        >>> [(len(environment), environment.color_flip) for environment in (*data.train, data.test)]
        [(600, 0.2), (600, 0.1), (297, 0.9)]
    """

    def __init__(
        self,
        digits: DigitSource | str | Path | None = None,
        *,
        seed: int = 0,
        max_train: int | None = None,
    ) -> None:
        self.source = digits if isinstance(digits, DigitSource) else find_digits(digits)
        if max_train is not None:
            check_count("max_train", max_train, 2)
        generator = torch.Generator().manual_seed(seed)
        train = self.source.train
        order = torch.randperm(len(train), generator=generator).numpy()[:max_train]
        order = order[: len(order) // 2 * 2]
        self.train = _color_pair(train[order], generator)
        self.held_out = _color_pair(self.source.held_out, generator)
        self.test = color_digits(self.source.test, TEST_COLOR_FLIP, generator)


def color_digits(digits: Digits, color_flip: float, generator: torch.Generator) -> Environment:
    """Colour grey digits for one environment.

    Args:
        digits: The grey digits, 28×28.
        color_flip: Probability that the colour disagrees with the (noisy) label.
        generator: Where the randomness comes from.

    Returns:
        The environment.
    """
    grey = torch.from_numpy(np.ascontiguousarray(digits.images[:, ::2, ::2])).float() / 255
    below_five = torch.from_numpy(digits.labels < 5)
    labels = below_five ^ (torch.rand(len(digits), generator=generator) < LABEL_NOISE)
    colors = labels ^ (torch.rand(len(digits), generator=generator) < color_flip)
    # Channel 1 for colour 1, as the published code has it
    channels = torch.stack([~colors, colors], dim=1)
    return Environment(grey[:, None] * channels[:, :, None, None], labels.float(), color_flip)


def _color_pair(digits: Digits, generator: torch.Generator) -> tuple[Environment, Environment]:
    """Take even rows for the first training environment, odd rows for the second."""
    first, second = (
        color_digits(digits[start::2], flip, generator)
        for start, flip in enumerate(TRAIN_COLOR_FLIPS)
    )
    return first, second
