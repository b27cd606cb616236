"""scikit-learn estimators for tables whose rows were selected with a bias."""

from pfdl.tabular.dwr import DWRRegressor
from pfdl.tabular.icp import ICPRegressor
from pfdl.tabular.pfdl import PFDLRegressor
from pfdl.tabular.plot import ScreeningPlot
from pfdl.tabular.reading import read_table
from pfdl.tabular.screened import ScreenedClassifier, ScreenedRegressor
from pfdl.tabular.selector import SelectionScreen
from pfdl.tabular.srdo import SRDORegressor

__all__ = [
    "DWRRegressor",
    "ICPRegressor",
    "PFDLRegressor",
    "SRDORegressor",
    "ScreenedClassifier",
    "ScreenedRegressor",
    "ScreeningPlot",
    "SelectionScreen",
    "read_table",
]
