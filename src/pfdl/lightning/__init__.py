"""PFDL with Lightning: a ready classifier and its data, and a callback for modules of your own."""

from pfdl.lightning.callback import PFDLCallback
from pfdl.lightning.classifier import ImageClassifier
from pfdl.lightning.datamodule import ContextDataModule

__all__ = ["ContextDataModule", "ImageClassifier", "PFDLCallback"]
