"""Weightings: how much each sample counts in the risk."""

from pfdl.objectives.base import Product, Uniform, Weighting
from pfdl.objectives.weightings.cnbb import CNBB
from pfdl.objectives.weightings.dwr import DWR, BatchDWR
from pfdl.objectives.weightings.groups import Balance, CVaR, GroupDRO
from pfdl.objectives.weightings.stablenet import StableNet

__all__ = [
    "CNBB",
    "DWR",
    "Balance",
    "BatchDWR",
    "CVaR",
    "GroupDRO",
    "Product",
    "StableNet",
    "Uniform",
    "Weighting",
]
