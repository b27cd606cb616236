"""Networks by name; every one a plain classifier whose features :func:`pfdl.attach` can reach."""

from pfdl.vision.backbones.convnet import ConvNet
from pfdl.vision.backbones.zoo import list_backbones, make_backbone, register_backbone

__all__ = ["ConvNet", "list_backbones", "make_backbone", "register_backbone"]
