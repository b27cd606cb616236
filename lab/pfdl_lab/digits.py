"""Grey digits as Colored-MNIST's protocol cuts them: MNIST, or the small digits that scikit-learn brings."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pfdl.data.mnist import Digits, read_mnist, small_digits

MNIST_VARIABLE = "PFDL_MNIST"
"""Environment variable that names the folder of the MNIST files."""


@dataclass(frozen=True)
class DigitSource:
    """Grey digits, cut into the three parts that the protocol colours.

    Attributes:
        name: What these digits are, for the heading of a report.
        train: For the two training environments.
        held_out: For further samples of the two training environments, never trained on.
        test: For the test environment.
        is_mnist: Whether this is MNIST itself.
    """

    name: str
    train: Digits
    held_out: Digits
    test: Digits
    is_mnist: bool


def mnist_folder(folder: str | Path | None = None) -> str | Path | None:
    """Return the folder of the MNIST files: the one given, or what the environment variable ``PFDL_MNIST`` says."""
    return folder or os.environ.get(MNIST_VARIABLE)


def find_digits(folder: str | Path | None = None) -> DigitSource:
    """Return MNIST if a folder is named, otherwise scikit-learn's digits, whose ``is_mnist`` is false.

    IRM's protocol takes its training environments from the first 50,000 rows of the training file and its test
    environment from the last 10,000; MNIST's own test file, unused by it, serves as held-out part.

    Args:
        folder: Where the four MNIST files are; by default what the environment variable ``PFDL_MNIST`` says.

    Raises:
        FileNotFoundError: If the folder does not hold the files.
        ValueError: If a file is not what it should be.
    """
    found = mnist_folder(folder)
    return _cut("MNIST", read_mnist(found), 50_000) if found else bundled_digits()


def bundled_digits() -> DigitSource:
    """Return scikit-learn's small digits, cut likewise."""
    return _cut("scikit-learn's digits (not MNIST)", small_digits(), 1200)


def _cut(name: str, digits: tuple[Digits, Digits], row: int) -> DigitSource:
    train, held_out = digits
    return DigitSource(name, train[:row], held_out, train[row:], is_mnist=name == "MNIST")
