"""Images: backbones and their features, training, evaluation, prediction, export."""

from typing import TYPE_CHECKING

from pfdl._internal.lazy import lazy_names

if TYPE_CHECKING:
    from pfdl.vision.backbones import (
        list_backbones as list_backbones,
        make_backbone as make_backbone,
    )
    from pfdl.vision.checkpoint import (
        ModelConfig as ModelConfig,
        TrainedModel as TrainedModel,
        export as export,
        load_model as load_model,
    )
    from pfdl.vision.classifier import Classifier as Classifier
    from pfdl.vision.config import DataOptions as DataOptions, TrainingConfig as TrainingConfig
    from pfdl.vision.diagnosis import (
        ImageDiagnosis as ImageDiagnosis,
        compare_diagnoses as compare_diagnoses,
        diagnose_images as diagnose_images,
    )
    from pfdl.vision.embedding import (
        describe_source as describe_source,
        embed_images as embed_images,
        load_extractor as load_extractor,
    )
    from pfdl.vision.evaluation import (
        Evaluation as Evaluation,
        evaluate as evaluate,
        read_evaluations as read_evaluations,
    )
    from pfdl.vision.features import embed as embed
    from pfdl.vision.loop import fit as fit
    from pfdl.vision.prediction import predict as predict
    from pfdl.vision.refitting import refit as refit
    from pfdl.vision.resume import TrainingStoppedError as TrainingStoppedError
    from pfdl.vision.sweeping import SweepConfig as SweepConfig, sweep as sweep
    from pfdl.vision.training import train as train

# : Loaded when first asked for, because ``pfdl train --help`` reads settings here and should not
# import PyTorch.
_MODULES = {
    "backbones": ("list_backbones", "make_backbone"),
    "checkpoint": ("ModelConfig", "TrainedModel", "export", "load_model"),
    "classifier": ("Classifier",),
    "config": ("DataOptions", "TrainingConfig"),
    "diagnosis": ("ImageDiagnosis", "compare_diagnoses", "diagnose_images"),
    "embedding": ("describe_source", "embed_images", "load_extractor"),
    "evaluation": ("Evaluation", "evaluate", "read_evaluations"),
    "features": ("embed",),
    "loop": ("fit",),
    "prediction": ("predict",),
    "refitting": ("refit",),
    "resume": ("TrainingStoppedError",),
    "sweeping": ("SweepConfig", "sweep"),
    "training": ("train",),
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _MODULES)
