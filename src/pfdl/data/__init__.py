"""Data sets of the paper, generated or read from disk, and images of your own."""

from typing import TYPE_CHECKING

from pfdl._internal.lazy import lazy_names

if TYPE_CHECKING:
    from pfdl.data.context_images import ContextImages as ContextImages
    from pfdl.data.manifest import Manifest as Manifest, read_manifest as read_manifest
    from pfdl.data.mmads import MMADS as MMADS, make_mmads as make_mmads
    from pfdl.data.opening import open_images as open_images
    from pfdl.data.photos import write_photos as write_photos
    from pfdl.data.shapes import Shapes as Shapes
    from pfdl.data.splits import make_split as make_split, make_test_set as make_test_set
    from pfdl.data.spuco_mnist import SpuCoMNIST as SpuCoMNIST

#: Loaded when first asked for: tables need no packages for images.
_MODULES = {
    "context_images": ("ContextImages",),
    "manifest": ("Manifest", "read_manifest"),
    "mmads": ("MMADS", "make_mmads"),
    "opening": ("open_images",),
    "photos": ("write_photos",),
    "shapes": ("Shapes",),
    "splits": ("make_split", "make_test_set"),
    "spuco_mnist": ("SpuCoMNIST",),
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _MODULES)
