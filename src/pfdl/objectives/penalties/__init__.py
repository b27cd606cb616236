"""Penalties: terms of a loss that read the features."""

from pfdl.objectives.base import Penalty
from pfdl.objectives.penalties.environments import CORAL, IRM, VREx
from pfdl.objectives.penalties.quantization import Quantization

__all__ = ["CORAL", "IRM", "Penalty", "Quantization", "VREx"]
