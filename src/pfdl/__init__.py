"""Partial Feature Decorrelation Learning: models that do not rely on correlations of the training data."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pfdl.contexts.balancing import context_sampler as context_sampler
    from pfdl.contexts.balancing import context_weights as context_weights
    from pfdl.contexts.inference import infer_contexts as infer_contexts
    from pfdl.contexts.statistics import image_statistics as image_statistics
    from pfdl.decorrelation import FeatureDecomposition as FeatureDecomposition
    from pfdl.decorrelation import PartialDecorrelation as PartialDecorrelation
    from pfdl.decorrelation import functional as functional
    from pfdl.diagnosis import diagnose as diagnose
    from pfdl.objectives import Objective as Objective
    from pfdl.objectives import list_objectives as list_objectives
    from pfdl.objectives import make_objective as make_objective
    from pfdl.objectives import register_objective as register_objective
    from pfdl.vision.features import FeatureTap as FeatureTap
    from pfdl.vision.features import attach as attach

__version__ = "0.1.0"

#: Loaded when first asked for, because PyTorch takes seconds to import and ``pfdl --help`` should not. No module may
#: have the name of one of these: importing it would put it in the other's place.
_HOME = {
    "FeatureDecomposition": "pfdl.decorrelation",
    "FeatureTap": "pfdl.vision.features",
    "Objective": "pfdl.objectives",
    "PartialDecorrelation": "pfdl.decorrelation",
    "attach": "pfdl.vision.features",
    "context_sampler": "pfdl.contexts.balancing",
    "context_weights": "pfdl.contexts.balancing",
    "diagnose": "pfdl.diagnosis",
    "functional": "pfdl.decorrelation",
    "image_statistics": "pfdl.contexts.statistics",
    "infer_contexts": "pfdl.contexts.inference",
    "list_objectives": "pfdl.objectives",
    "make_objective": "pfdl.objectives",
    "register_objective": "pfdl.objectives",
}
__all__ = ["__version__", *_HOME]
_PACKAGES = ("contexts", "data", "decorrelation", "diagnosis", "lightning", "objectives", "tabular", "vision")


def __getattr__(name: str) -> Any:
    if name in _HOME:
        globals()[name] = getattr(import_module(_HOME[name]), name)
        return globals()[name]
    if name in _PACKAGES:
        return import_module(f"pfdl.{name}")
    raise AttributeError(f"module 'pfdl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
