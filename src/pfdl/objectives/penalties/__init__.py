"""Penalties: terms of a loss that read the features. One class a file."""

from pfdl.objectives.base import Penalty
from pfdl.objectives.penalties.coral import CORAL
from pfdl.objectives.penalties.irm import IRM
from pfdl.objectives.penalties.quantization import Quantization
from pfdl.objectives.penalties.vrex import VREx

__all__ = ["CORAL", "IRM", "Penalty", "Quantization", "VREx"]
