"""Data sets of the paper, generated or read from disk, and images of your own."""

from pfdl.data.colored_mnist import ColoredMNIST
from pfdl.data.context_images import ContextImages
from pfdl.data.manifest import Manifest, read_manifest
from pfdl.data.mmads import MMADS, make_mmads
from pfdl.data.opening import describe_images, open_images
from pfdl.data.shapes import Shapes
from pfdl.data.sources import ContextFolder
from pfdl.data.splits import make_split, make_test_set
from pfdl.data.spuco_mnist import SpuCoMNIST

__all__ = [
    "MMADS",
    "ColoredMNIST",
    "ContextFolder",
    "ContextImages",
    "Manifest",
    "Shapes",
    "SpuCoMNIST",
    "describe_images",
    "make_mmads",
    "make_split",
    "make_test_set",
    "open_images",
    "read_manifest",
]
