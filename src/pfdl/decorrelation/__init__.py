"""The paper: PartialDecorrelation, the network g, the two losses, kernels and distributed sums."""

from pfdl.decorrelation import functional
from pfdl.decorrelation.decomposition import FeatureDecomposition
from pfdl.decorrelation.diagnostics import Diagnostics
from pfdl.decorrelation.partial_decorrelation import PartialDecorrelation

__all__ = ["Diagnostics", "FeatureDecomposition", "PartialDecorrelation", "functional"]
