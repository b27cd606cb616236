"""Partial Feature Decorrelation Learning: models that do not lean on correlations of the training data alone."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pfdl import functional
    from pfdl.decomposition import FeatureDecomposition
    from pfdl.diagnosis import diagnose
    from pfdl.filters import image_statistics
    from pfdl.objective import Objective, make_objective
    from pfdl.penalties import PartialDecorrelation
    from pfdl.scenes import context_weights, infer_contexts
    from pfdl.taps import FeatureTap, attach

__version__ = "0.1.0"
__all__ = [
    "FeatureDecomposition",
    "FeatureTap",
    "Objective",
    "PartialDecorrelation",
    "__version__",
    "attach",
    "context_weights",
    "diagnose",
    "functional",
    "image_statistics",
    "infer_contexts",
    "make_objective",
]

#: Loaded when first asked for, because PyTorch takes seconds to import and ``pfdl --help`` should not. No module may
#: have the name of one of these: importing it would put it in the other's place.
_HOME = {
    "FeatureDecomposition": "pfdl.decomposition",
    "FeatureTap": "pfdl.taps",
    "Objective": "pfdl.objective",
    "PartialDecorrelation": "pfdl.penalties",
    "attach": "pfdl.taps",
    "context_weights": "pfdl.scenes",
    "diagnose": "pfdl.diagnosis",
    "image_statistics": "pfdl.filters",
    "infer_contexts": "pfdl.scenes",
    "make_objective": "pfdl.objective",
}
_PACKAGES = ("data", "diagnosis", "functional", "penalties", "tabular", "weightings")


def __getattr__(name: str) -> Any:
    if name in _HOME:
        globals()[name] = getattr(import_module(_HOME[name]), name)
        return globals()[name]
    if name in _PACKAGES:
        return import_module(f"pfdl.{name}")
    raise AttributeError(f"module 'pfdl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
