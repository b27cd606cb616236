"""Contexts that nobody named: inferred from training images, the same for every command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import ConcatDataset, Dataset

from pfdl._internal.files import write_atomically, write_json
from pfdl._internal.validation import resolve_device
from pfdl.contexts import InferredContexts, find_contexts
from pfdl.contexts.assigning import assign_contexts
from pfdl.contexts.finders import reads_logits
from pfdl.contexts.sources import Describe, description_of
from pfdl.data.context_images import ContextImages
from pfdl.data.manifest import Manifest, ManifestRow
from pfdl.data.sources import ContextSource
from pfdl.runs import INFERRED_CONTEXTS, WHY_CONTEXTS, read_run
from pfdl.vision.backbones import make_backbone
from pfdl.vision.config import TrainingConfig
from pfdl.vision.features import embed

if TYPE_CHECKING:
    from pfdl.vision.checkpoint import TrainedModel

Labels = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Described:
    """Images of which contexts can be inferred: they themselves or their features, and the classes.

    Attributes:
        data: A dataset of (image or features, …), in the order of the rows.
        labels: The class of each, as a number.
        rows: What they are.
    """

    data: Dataset[Any]
    labels: Labels
    rows: Sequence[ManifestRow]

    @classmethod
    def of_set(cls, source: ContextSource, manifest: Manifest, name: str, size: int) -> Described:
        """Describe a set of a manifest by what the source gives: images or features."""
        images = ContextImages(source, manifest, name, size=size)
        return cls(images, images.labels.numpy(), manifest.rows_of(name))


@dataclass(frozen=True, eq=False)
class RunContexts:
    """Contexts of training images, and of further ones, which are recognised by them.

    Attributes:
        inferred: What was found in the training images.
        further: The contexts of the further images.
        is_recognised: Whether contexts of images that were left out can be recognised.
        is_confirmed: Whether the contexts were also confirmed.
    """

    inferred: InferredContexts
    further: NDArray[np.intp]
    is_recognised: bool
    is_confirmed: bool


def read_training(trained: TrainedModel) -> TrainingConfig:
    """Read how a model was trained; of what the run does not say, the default."""
    try:
        return TrainingConfig(**read_run(trained.folder).settings["training"])
    except (KeyError, OSError, TypeError, ValueError):
        model = trained.config
        return TrainingConfig(
            backbone=model.backbone, image_size=model.image_size, small_stem=model.small_stem
        )


def keep_contexts(folder: Path, paths: Sequence[str], inferred: InferredContexts) -> None:
    """Write the contexts of images into a run folder, and why they are believed."""
    columns = {"path": paths, "context": inferred.contexts}
    if inferred.draws is not None:
        columns["draws"] = inferred.draws
    write_json(folder / WHY_CONTEXTS, inferred.to_dict())
    write_atomically(folder / INFERRED_CONTEXTS, pd.DataFrame(columns).to_csv(index=False))


def how_to_infer(config: TrainingConfig) -> dict[str, Any]:
    """Return the settings of the inference in a run: as it was trained, or the defaults where it
    was trained without, or by the logits of a first network.
    """
    settings: dict[str, Any] = {"seed": config.seed}
    if config.contexts != "inferred" or reads_logits(config.infer_by):
        return settings
    settings |= {"method": config.infer_by, **config.infer_settings}
    if not config.confirm:
        settings["confirmation"] = 0.0
    return settings


def describe_by(
    config: TrainingConfig, backbone: Callable[[], nn.Module], device: str
) -> Describe | None:
    """Return what describes images by the features of a network that has learnt something.

    Args:
        config: How the network is trained; None is returned if it starts from no weights.
        backbone: Returns the network as it starts.
        device: Where to compute.
    """
    if not config.pretrained and config.weights is None:
        return None
    return partial(embed, backbone(), device=resolve_device(device))


def describe_by_weights(config: TrainingConfig, classes: int, device: str) -> Describe | None:
    """Return what describes images of a run as its training did: by the weights that it started
    from; None if it started from none.
    """
    start = partial(
        make_backbone,
        config.backbone,
        classes,
        image_size=config.image_size,
        small_stem=config.small_stem,
        pretrained=config.pretrained,
        weights=config.weights,
    )
    return describe_by(config, start, device)


def infer_in_run(
    config: TrainingConfig,
    training: Described,
    further: Described,
    describe: Describe | None,
    *,
    unconfirmed: bool = False,
) -> RunContexts:
    """Infer the contexts of training images, as training does, and recognise them in further ones.

    Args:
        config: Of the run.
        training: Its training images.
        further: Validation or test images.
        describe: As :func:`describe_by_weights` gives it.
        unconfirmed: Whether to return the most stable ones where none are confirmed.
    """
    settings = how_to_infer(config)
    # In one dataset of its own, as training has it
    data: Dataset[Any] = ConcatDataset([training.data])
    find = partial(find_contexts, data, training.labels, describe=describe)
    inferred = find(**settings)
    confirmed = inferred.number > 1 and config.confirm
    if inferred.number == 1 and unconfirmed:
        inferred = find(**{**settings, "confirmation": 0.0})
    if inferred.number == 1:
        return RunContexts(inferred, np.zeros(len(further.labels), dtype=np.intp), False, False)
    assigned = assign_contexts(
        data,
        training.labels,
        inferred.contexts,
        further.data,
        further.labels,
        describe=description_of(inferred.description, describe),
        seed=config.seed,
    )
    is_sound = assigned.is_sound
    return RunContexts(inferred, assigned.contexts, is_sound, confirmed and is_sound)
