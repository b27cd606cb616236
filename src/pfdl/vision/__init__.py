"""Images: backbones and their features, training, evaluation, prediction, export."""

from typing import TYPE_CHECKING

from pfdl._internal.lazy import lazy_names

if TYPE_CHECKING:
    from pfdl.vision.checkpoint import TrainedModel as TrainedModel
    from pfdl.vision.checkpoint import export as export
    from pfdl.vision.checkpoint import load_model as load_model
    from pfdl.vision.classifier import Classifier as Classifier
    from pfdl.vision.config import DataOptions as DataOptions
    from pfdl.vision.config import TrainingConfig as TrainingConfig
    from pfdl.vision.diagnosis import diagnose_images as diagnose_images
    from pfdl.vision.evaluation import evaluate as evaluate
    from pfdl.vision.features import embed as embed
    from pfdl.vision.loop import fit as fit
    from pfdl.vision.prediction import predict as predict
    from pfdl.vision.refitting import refit as refit
    from pfdl.vision.resume import TrainingStoppedError as TrainingStoppedError
    from pfdl.vision.training import train as train

#: Loaded when first asked for, because ``pfdl train --help`` reads settings here and should not import PyTorch. No
#: module may have the name of one of these: importing it would put it in the other's place.
_HOME = {
    "Classifier": "classifier",
    "DataOptions": "config",
    "TrainedModel": "checkpoint",
    "TrainingConfig": "config",
    "TrainingStoppedError": "resume",
    "diagnose_images": "diagnosis",
    "embed": "features",
    "evaluate": "evaluation",
    "export": "checkpoint",
    "fit": "loop",
    "load_model": "checkpoint",
    "predict": "prediction",
    "refit": "refitting",
    "train": "training",
}
__all__ = list(_HOME)
__getattr__, __dir__ = lazy_names(__name__, {name: f"{__name__}.{home}" for name, home in _HOME.items()})
