"""Weightings: how much each sample counts in the risk. One class a file."""

from pfdl.weightings.balance import Balance
from pfdl.weightings.base import Weighting
from pfdl.weightings.cnbb import CNBB
from pfdl.weightings.dwr import DWR
from pfdl.weightings.group_dro import GroupDRO
from pfdl.weightings.product import Product
from pfdl.weightings.scene_balance import SceneBalance
from pfdl.weightings.stablenet import StableNet
from pfdl.weightings.uniform import Uniform

__all__ = ["CNBB", "DWR", "Balance", "GroupDRO", "Product", "SceneBalance", "StableNet", "Uniform", "Weighting"]
