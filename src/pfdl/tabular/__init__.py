"""scikit-learn estimators for tables whose sample was selected with a bias."""

from pfdl.tabular.classifier import PFDLClassifier
from pfdl.tabular.dwr import DWRRegressor
from pfdl.tabular.pfdl import PFDLRegressor
from pfdl.tabular.picture import Picture, picture_table
from pfdl.tabular.srdo import SRDORegressor

__all__ = ["DWRRegressor", "PFDLClassifier", "PFDLRegressor", "Picture", "SRDORegressor", "picture_table"]
