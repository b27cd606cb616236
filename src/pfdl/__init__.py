"""Partial Feature Decorrelation Learning: models that do not rely on correlations of the training data."""

from typing import TYPE_CHECKING

from pfdl._internal.lazy import lazy_names

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
    from pfdl.vision.backbones import register_backbone as register_backbone
    from pfdl.vision.features import FeatureTap as FeatureTap
    from pfdl.vision.features import attach as attach

__version__ = "0.2.0"

#: Loaded when first asked for, because PyTorch takes seconds to import and ``pfdl --help`` should not.
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
    "register_backbone": "pfdl.vision.backbones",
    "register_objective": "pfdl.objectives",
}
__all__ = ["__version__", *_HOME]
_PACKAGES = ("contexts", "data", "decorrelation", "diagnosis", "lightning", "objectives", "tabular", "vision")
__getattr__, __dir__ = lazy_names(__name__, _HOME, _PACKAGES)
