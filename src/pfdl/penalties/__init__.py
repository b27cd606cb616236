"""Penalties: terms of a loss that read the features. One class a file."""

from pfdl.penalties.base import Penalty
from pfdl.penalties.coral import CORAL
from pfdl.penalties.diagnostics import Diagnostics
from pfdl.penalties.irm import IRM
from pfdl.penalties.partial_decorrelation import PartialDecorrelation
from pfdl.penalties.quantization import Quantization
from pfdl.penalties.vrex import VREx

__all__ = ["CORAL", "IRM", "Diagnostics", "PartialDecorrelation", "Penalty", "Quantization", "VREx"]
