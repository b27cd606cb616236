"""Partial Feature Decorrelation Learning: models that do not lean on correlations of the training data alone."""

from pfdl import functional
from pfdl.attach import FeatureTap, attach
from pfdl.decomposition import FeatureDecomposition
from pfdl.diagnosis import diagnose
from pfdl.objective import Objective, make_objective
from pfdl.penalties import PartialDecorrelation

__version__ = "0.1.0"
__all__ = [
    "FeatureDecomposition",
    "FeatureTap",
    "Objective",
    "PartialDecorrelation",
    "__version__",
    "attach",
    "diagnose",
    "functional",
    "make_objective",
]
