"""Refit the last layer of a finished run on images in which all groups are equally frequent."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pfdl._internal.files import write_json
from pfdl._internal.validation import check_choice
from pfdl.contexts import InferredContexts, Readout, refit_readout
from pfdl.data.context_images import ContextImages
from pfdl.data.images import hash_bytes
from pfdl.data.manifest import NO_CONTEXT, Manifest
from pfdl.data.sources import ContextSource
from pfdl.runs import MANIFEST, claim, read_run
from pfdl.vision.checkpoint import WEIGHTS, TrainedModel, save_weights
from pfdl.vision.embedding import inputs_of
from pfdl.vision.features import attach, run_model
from pfdl.vision.inferring import (
    Described,
    describe_by_weights,
    infer_in_run,
    keep_contexts,
    read_training,
)

REFIT = "refit.json"


def refit(
    trained: TrainedModel,
    source: ContextSource,
    manifest: Manifest,
    folder: Path,
    *,
    contexts: str = "inferred",
    device: str = "cpu",
    seed: int = 0,
) -> tuple[Readout, str]:
    """Refit the last layer of a trained network so that all groups count equally, and write it as a
    run of its own.

    The layer is fitted on the validation images, which the network was not trained on; see
    :func:`pfdl.contexts.refit_readout`. The network stays as it is up to this layer. No test image
    is read.

    Args:
        trained: The network.
        source: Where its images come from.
        manifest: The split it was trained with.
        folder: The new run folder, which :func:`pfdl.vision.load_model` reads as any other.
        contexts: ``"known"``, those of the data, or ``"inferred"``, what a training with inferred
            contexts finds in the training images; they are recognised in the validation images.
        device: Where to compute.
        seed: Seed of what is drawn.

    Returns:
        The layer; and a sentence on which contexts were balanced, and why they are believed.

    Raises:
        ValueError: If there are no validation images, they have no contexts or none are found, or
            groups are too small.
        OSError: If the folder cannot be written to.
    """
    check_choice("contexts", contexts, ("known", "inferred"))
    _check_data(trained, source, manifest, folder)
    known = contexts == "known"
    held_out = ContextImages(
        inputs_of(trained.config, source),
        manifest,
        "validation",
        size=trained.config.image_size,
        reveal_contexts=known,
    )
    if known:
        balanced = _known_contexts(held_out, manifest)
    else:
        balanced = _infer_contexts(trained, source, manifest, device)
    _, features = run_model(trained.model, held_out, device=device, with_features=True)
    readout = refit_readout(
        features,
        held_out.labels,
        balanced.numbers,
        num_classes=len(manifest.classes),
        class_names=manifest.classes,
        context_names=balanced.names,
        seed=seed,
    )
    weights = hash_bytes((trained.folder / WEIGHTS).read_bytes())
    settings = {
        **read_run(trained.folder).settings,
        "split": manifest.sha256,
        "refit": {"of": weights, "contexts": contexts, "seed": seed},
    }
    with claim(folder, "training", settings):
        manifest.save(folder / MANIFEST)
        save_weights(folder, with_readout(trained.model, readout).state_dict())
        told = {
            name: value for name, value in vars(readout).items() if not isinstance(value, Tensor)
        }
        write_json(folder / REFIT, {**told, "sentence": balanced.sentence})
        if balanced.inferred is not None:
            rows = [*manifest.rows_of("train"), *manifest.rows_of("validation")]
            keep_contexts(folder, [row.path for row in rows], balanced.inferred)
    return readout, balanced.sentence


def _check_data(
    trained: TrainedModel, source: ContextSource, manifest: Manifest, folder: Path
) -> None:
    """Raise ValueError unless the validation images of the run are there, and the new folder is
    another one.
    """
    if "validation" not in manifest.set_names:
        raise ValueError(
            "the run held no validation images out, and these are what the layer is refitted on."
        )
    held = {sample.path for sample in source.samples}
    if absent := [row.path for row in manifest.rows_of("validation") if row.path not in held]:
        raise ValueError(
            f"the data is not what the run was trained on: {absent[0]!r} is not in it."
        )
    if folder.resolve() == trained.folder.resolve():
        raise ValueError(f"{folder} is the run itself; name another folder for the refitted one.")


class _Balanced(NamedTuple):
    """The contexts of the validation images, which are to count equally.

    Attributes:
        numbers: The context of each image.
        names: What the contexts are called.
        sentence: Which they are, and why they are believed.
        inferred: What was inferred, the contexts being those of the training images and then of
            the validation images; None where contexts are known.
    """

    numbers: Tensor
    names: Sequence[str]
    sentence: str
    inferred: InferredContexts | None = None


def _known_contexts(held_out: ContextImages, manifest: Manifest) -> _Balanced:
    # Other sets may have others
    places, numbers = torch.unique(held_out.contexts, return_inverse=True)
    names = [manifest.contexts[place] or NO_CONTEXT for place in places.tolist()]
    if len(names) < 2:
        raise ValueError(
            "the validation images have no contexts; let them be inferred: --contexts inferred."
        )
    return _Balanced(numbers, names, f"The {len(names)} contexts are those of the data.")


def with_readout(model: nn.Module, readout: Readout) -> nn.Module:
    """Return a copy of a classifier with another last layer."""
    changed = copy.deepcopy(model).cpu()
    with attach(changed) as tap:
        layer = changed.get_submodule(tap.layer_name)
    weight = layer.weight
    bias = getattr(layer, "bias", None)
    if not isinstance(weight, Tensor) or not isinstance(bias, Tensor):
        raise ValueError(
            f"the last layer {tap.layer_name!r} has no weight and bias to be refitted."
        )
    with torch.no_grad():
        weight.copy_(readout.weight.reshape(weight.shape))
        bias.copy_(readout.bias)
    return changed


def _infer_contexts(
    trained: TrainedModel, source: ContextSource, manifest: Manifest, device: str
) -> _Balanced:
    """Infer the contexts of the training images, as training does, and recognise them in the
    validation images; ValueError if there is one only, or they cannot be recognised.
    """
    config = read_training(trained)
    size = trained.config.image_size
    inference = infer_in_run(
        config,
        Described.of_set(source, manifest, "train", size),
        Described.of_set(source, manifest, "validation", size),
        describe_by_weights(config, len(manifest.classes), device),
    )
    inferred = inference.inferred
    why = inferred.sentence
    if inferred.number > 1 and inference.is_recognised:
        # As contexts.csv has them
        names = [str(number) for number in range(inferred.number)]
        contexts = np.concatenate([inferred.contexts, inference.further])
        numbers = torch.from_numpy(inference.further).long()
        return _Balanced(numbers, names, why, replace(inferred, contexts=contexts))
    if inferred.number > 1:
        why = f"{why} But they cannot be recognised in the validation images."
    remedy = (
        "if you know them, arrange the images as class/context/image and give --contexts known."
    )
    if manifest.has_contexts:
        remedy = "the data has contexts of its own, which --contexts known uses."
    raise ValueError(
        f"there is nothing to balance, so nothing was refitted. {why} To go on: {remedy}"
    )
