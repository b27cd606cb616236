"""Data sets of the paper, generated or read from disk, and images of your own."""

from typing import TYPE_CHECKING

from pfdl._internal.lazy import lazy_names

if TYPE_CHECKING:
    from pfdl.data.context_images import ContextImages as ContextImages
    from pfdl.data.manifest import Manifest as Manifest
    from pfdl.data.manifest import read_manifest as read_manifest
    from pfdl.data.mmads import MMADS as MMADS
    from pfdl.data.mmads import make_mmads as make_mmads
    from pfdl.data.opening import open_images as open_images
    from pfdl.data.shapes import Shapes as Shapes
    from pfdl.data.splits import make_split as make_split
    from pfdl.data.splits import make_test_set as make_test_set
    from pfdl.data.spuco_mnist import SpuCoMNIST as SpuCoMNIST

#: Loaded when first asked for: tables need no packages for images.
_HOME = {
    "ContextImages": "pfdl.data.context_images",
    "MMADS": "pfdl.data.mmads",
    "Manifest": "pfdl.data.manifest",
    "Shapes": "pfdl.data.shapes",
    "SpuCoMNIST": "pfdl.data.spuco_mnist",
    "make_mmads": "pfdl.data.mmads",
    "make_split": "pfdl.data.splits",
    "make_test_set": "pfdl.data.splits",
    "open_images": "pfdl.data.opening",
    "read_manifest": "pfdl.data.manifest",
}
__all__ = list(_HOME)
__getattr__, __dir__ = lazy_names(__name__, _HOME)
