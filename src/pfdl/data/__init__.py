"""Data sets of the paper, generated or read from disk."""

from pfdl.data.colored_mnist import ColoredMNIST
from pfdl.data.context_images import ContextImages
from pfdl.data.manifest import Manifest, read_manifest
from pfdl.data.mmads import MMADS, make_mmads
from pfdl.data.proportions import make_split
from pfdl.data.shapes import Shapes
from pfdl.data.sources import ContextFolder

__all__ = [
    "MMADS",
    "ColoredMNIST",
    "ContextFolder",
    "ContextImages",
    "Manifest",
    "Shapes",
    "make_mmads",
    "make_split",
    "read_manifest",
]
