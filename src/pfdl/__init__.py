"""Partial Feature Decorrelation Learning: models that do not rely on correlations of the training
data.
"""

from typing import TYPE_CHECKING

from pfdl._internal.lazy import lazy_names

if TYPE_CHECKING:
    from pfdl.contexts.balancing import (
        context_sampler as context_sampler,
        context_weights as context_weights,
    )
    from pfdl.contexts.inference import infer_contexts as infer_contexts
    from pfdl.contexts.statistics import image_statistics as image_statistics
    from pfdl.decorrelation import (
        FeatureDecomposition as FeatureDecomposition,
        PartialDecorrelation as PartialDecorrelation,
        functional as functional,
    )
    from pfdl.diagnosis import diagnose as diagnose
    from pfdl.objectives import (
        Objective as Objective,
        list_objectives as list_objectives,
        make_objective as make_objective,
        register_objective as register_objective,
    )
    from pfdl.vision.backbones import register_backbone as register_backbone
    from pfdl.vision.features import FeatureTap as FeatureTap, attach as attach

__version__ = "0.2.0"

# : Loaded when first asked for, because PyTorch takes seconds to import and ``pfdl --help`` should
# not.
_MODULES = {
    "contexts.balancing": ("context_sampler", "context_weights"),
    "contexts.inference": ("infer_contexts",),
    "contexts.statistics": ("image_statistics",),
    "decorrelation": ("FeatureDecomposition", "PartialDecorrelation", "functional"),
    "diagnosis": ("diagnose",),
    "objectives": ("Objective", "list_objectives", "make_objective", "register_objective"),
    "vision.backbones": ("register_backbone",),
    "vision.features": ("FeatureTap", "attach"),
}
_PACKAGES = (
    "contexts",
    "data",
    "decorrelation",
    "diagnosis",
    "lightning",
    "objectives",
    "runs",
    "tabular",
    "vision",
)
__getattr__, __dir__, _names = lazy_names(__name__, _MODULES, _PACKAGES)
__all__ = ["__version__", *_names]
