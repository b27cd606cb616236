"""Weightings: how much each sample counts in the risk. One class a file."""

from pfdl.weightings.base import Weighting
from pfdl.weightings.uniform import Uniform

__all__ = ["Uniform", "Weighting"]
