"""Penalties: terms of a loss that read the features. One class a file."""

from pfdl.penalties.base import Penalty
from pfdl.penalties.irm import IRM
from pfdl.penalties.partial_decorrelation import Diagnostics, PartialDecorrelation
from pfdl.penalties.vrex import VREx

__all__ = ["IRM", "Diagnostics", "PartialDecorrelation", "Penalty", "VREx"]
