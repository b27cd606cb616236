"""Penalties: terms of a loss that read the features or compare environments."""

from pfdl.objectives.base import Penalty
from pfdl.objectives.penalties.coral import CORAL
from pfdl.objectives.penalties.covariance import CovarianceDecorrelation
from pfdl.objectives.penalties.environments import EnvironmentPenalty
from pfdl.objectives.penalties.irm import IRM
from pfdl.objectives.penalties.quantization import Quantization
from pfdl.objectives.penalties.vrex import VREx

__all__ = [
    "CORAL",
    "IRM",
    "CovarianceDecorrelation",
    "EnvironmentPenalty",
    "Penalty",
    "Quantization",
    "VREx",
]
