"""Penalties: terms of a loss that read the features. One class a file."""

from pfdl.penalties.base import Penalty
from pfdl.penalties.partial_decorrelation import Diagnostics, PartialDecorrelation

__all__ = ["Diagnostics", "PartialDecorrelation", "Penalty"]
