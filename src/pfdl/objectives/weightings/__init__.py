"""Weightings: how much each sample counts in the risk."""

from pfdl.objectives.base import Weighting
from pfdl.objectives.weightings.balance import Balance
from pfdl.objectives.weightings.cnbb import CNBB
from pfdl.objectives.weightings.cvar import CVaR
from pfdl.objectives.weightings.dwr import DWR, BatchDWR
from pfdl.objectives.weightings.group_dro import GroupDRO
from pfdl.objectives.weightings.product import Product
from pfdl.objectives.weightings.stablenet import StableNet
from pfdl.objectives.weightings.uniform import Uniform

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
