"""PFDL with Lightning: a ready classifier and its data, and a callback for modules of your own."""

from pfdl.vision.callbacks import PFDLCallback
from pfdl.vision.classifier import ImageClassifier
from pfdl.vision.datamodule import ContextDataModule

__all__ = ["ContextDataModule", "ImageClassifier", "PFDLCallback"]
