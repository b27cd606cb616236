"""Refit the last layer of a finished run on images in which all groups are equally frequent."""

from __future__ import annotations

import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from pfdl._internal.files import write_atomically, write_json
from pfdl._internal.validation import check_choice
from pfdl.contexts import Readout, refit_readout
from pfdl.data.context_images import ContextImages
from pfdl.data.images import hash_bytes
from pfdl.data.manifest import NO_CONTEXT, Manifest
from pfdl.data.sources import ContextSource
from pfdl.runs import INFERRED_CONTEXTS, MANIFEST, WHY_CONTEXTS, claim, read_run
from pfdl.vision.checkpoint import WEIGHTS, TrainedModel, save_weights
from pfdl.vision.embedding import inputs_of
from pfdl.vision.features import attach, run_model
from pfdl.vision.inferring import (
    Described,
    RunContexts,
    describe_by_weights,
    infer_in_run,
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
    size = trained.config.image_size
    known = contexts == "known"
    images = ContextImages(source, manifest, "validation", size=size, reveal_contexts=known)
    inferred = None if known else _infer_contexts(trained, source, manifest, images, device)
    if inferred:
        numbers = torch.from_numpy(inferred.further).long()
        # As contexts.csv has them
        names = [str(number) for number in range(inferred.inferred.number)]
        sentence = inferred.inferred.sentence
    else:
        # Other sets may have others
        places, numbers = torch.unique(images.contexts, return_inverse=True)
        names = [manifest.contexts[place] or NO_CONTEXT for place in places.tolist()]
        sentence = f"The {len(names)} contexts are those of the data."
        if len(names) < 2:
            raise ValueError(
                "the validation images have no contexts; let them be inferred: --contexts inferred."
            )
    inputs = inputs_of(trained.config, source)
    held_out = ContextImages(inputs, manifest, "validation", size=size)
    _, features = run_model(trained.model, held_out, device=device, with_features=True)
    readout = refit_readout(
        features,
        images.labels,
        numbers,
        num_classes=len(manifest.classes),
        class_names=manifest.classes,
        context_names=names,
        seed=seed,
    )
    settings: dict[str, Any] = {
        **read_run(trained.folder).settings,
        "split": manifest.sha256,
        "refit": {
            "of": hash_bytes((trained.folder / WEIGHTS).read_bytes()),
            "contexts": contexts,
            "seed": seed,
        },
    }
    with claim(folder, "training", settings):
        manifest.save(folder / MANIFEST)
        save_weights(folder, with_readout(trained.model, readout).state_dict())
        told = {
            name: value for name, value in asdict(readout).items() if not isinstance(value, Tensor)
        }
        write_json(folder / REFIT, {**told, "sentence": sentence})
        if inferred:
            write_json(folder / WHY_CONTEXTS, inferred.inferred.to_dict())
            rows = [*manifest.rows_of("train"), *manifest.rows_of("validation")]
            found = np.concatenate([inferred.inferred.contexts, inferred.further])
            table = pd.DataFrame({"path": [row.path for row in rows], "context": found})
            write_atomically(folder / INFERRED_CONTEXTS, table.to_csv(index=False))
    return readout, sentence


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
    trained: TrainedModel,
    source: ContextSource,
    manifest: Manifest,
    validation: ContextImages,
    device: str,
) -> RunContexts:
    """Infer the contexts of the training images, as training does, and recognise them in the
    validation images; ValueError if there is one only, or they cannot be recognised.
    """
    train = ContextImages(source, manifest, "train", size=trained.config.image_size)
    config = read_training(trained)
    found = infer_in_run(
        config,
        Described.of(train, manifest.rows_of("train")),
        Described.of(validation, manifest.rows_of("validation")),
        describe_by_weights(config, len(manifest.classes), device),
    )
    if found.inferred.number > 1 and found.is_recognised:
        return found
    remedy = (
        "if you know them, arrange the images as class/context/image and give --contexts known."
    )
    if manifest.has_contexts:
        remedy = "the data has contexts of its own, which --contexts known uses."
    why = found.inferred.sentence
    if found.inferred.number > 1:
        why = f"{why} But they cannot be recognised in the validation images."
    raise ValueError(
        f"there is nothing to balance, so nothing was refitted. {why} To go on: {remedy}"
    )
