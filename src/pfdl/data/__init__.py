"""Data sets of the paper, generated or read from disk."""

from pfdl.data.colored_mnist import ColoredMNIST
from pfdl.data.mmads import MMADS, make_mmads

__all__ = ["MMADS", "ColoredMNIST", "make_mmads"]
