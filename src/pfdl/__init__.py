"""Partial Feature Decorrelation Learning: models that do not lean on correlations of the training data alone."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pfdl.contexts.inference import context_weights, infer_contexts
    from pfdl.contexts.statistics import image_statistics
    from pfdl.decorrelation import functional
    from pfdl.decorrelation.decomposition import FeatureDecomposition
    from pfdl.diagnosis import diagnose
    from pfdl.objectives.objective import Objective, make_objective
    from pfdl.objectives.penalties import PartialDecorrelation
    from pfdl.vision.features import FeatureTap, attach

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
    "FeatureDecomposition": "pfdl.decorrelation.decomposition",
    "FeatureTap": "pfdl.vision.features",
    "Objective": "pfdl.objectives.objective",
    "PartialDecorrelation": "pfdl.objectives.penalties",
    "attach": "pfdl.vision.features",
    "context_weights": "pfdl.contexts.inference",
    "diagnose": "pfdl.diagnosis",
    "image_statistics": "pfdl.contexts.statistics",
    "infer_contexts": "pfdl.contexts.inference",
    "make_objective": "pfdl.objectives.objective",
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
