"""Train one network on samples in memory: the library's loop with what experiments ask for beyond
it.

Those are a layer other than the last as the features, features with every class at its own mean,
and a training that diverges as a result. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pfdl.objectives import Objective
from pfdl.vision import Classifier, TrainingConfig, fit
from pfdl.vision.features import FeatureTap, run_model


class Samples(NamedTuple):
    """Part of a data set.

    Attributes:
        inputs: Images as bytes, shape (n, 3, h, w), or numbers, shape (n, p).
        labels: Shape (n,).
        contexts: The true contexts, shape (n,); only oracles may see them.
    """

    inputs: Tensor
    labels: Tensor
    contexts: Tensor


class Progress(NamedTuple):
    """What a training shows of itself after an epoch.

    Attributes:
        epoch: Epochs that are done.
        model: The network, in training mode.
        objective: What it is trained on.
        tap: Gives the features of the last forward pass.
        metrics: Mean over the epoch's batches of what the objective reports, such as
            ``effective_sample_size`` as a share of the batch.
    """

    epoch: int
    model: nn.Module
    objective: Objective
    tap: FeatureTap
    metrics: dict[str, float]


class DivergedError(ValueError):
    """Training ended in numbers that are not finite."""


def train_row(
    config: TrainingConfig,
    model: nn.Module,
    samples: Samples,
    environments: Tensor,
    *,
    layer: int = -1,
    class_centred: bool = False,
    draws: Tensor | None = None,
    device: str = "cpu",
    after_epoch: Callable[[Progress], None] | None = None,
) -> dict[str, float]:
    """Train a network in place; the last epoch counts, nothing is selected.

    Args:
        config: How to train; the network is the caller's, whatever its backbone says.
        model: A classifier with a linear last layer.
        samples: The training samples.
        environments: What the objective may know of each sample's context, shape (n,).
        layer: The linear layer whose input the objective sees as features: -1 for the last, -2 for
            the one before it.
        class_centred: Whether the objective sees the features with every class of a batch at its
            own mean.
        draws: How often the sampler ``"shuffle"`` draws each sample relative to the others, shape
            (n,); by default each comes once an epoch.
        device: Where to compute.
        after_epoch: Called after every epoch; it may look, and must leave the network as it was.

    Returns:
        The metrics of the last epoch, see :class:`Progress`.

    Raises:
        DivergedError: If features or weights stopped being finite.
    """
    seen = [part for part in model.modules() if isinstance(part, nn.Linear)][layer]
    torch.manual_seed(config.seed)
    classifier = Classifier(config, backbone=model, layer=seen)
    objective = classifier.objective
    if class_centred:
        objective.register_forward_pre_hook(_centre_classes, with_kwargs=True)

    def reported(means: Mapping[str, float]) -> dict[str, float]:
        batch = min(config.batch_size, len(samples.labels))
        found = {name: means[name] for name in objective.metrics()}
        return {
            name: value / (batch if name == "effective_sample_size" else 1)
            for name, value in found.items()
        }

    def look(epoch: int, means: Mapping[str, float]) -> None:
        if after_epoch is not None:
            after_epoch(Progress(epoch, model, objective, classifier.tap, reported(means)))

    with classifier.tap:
        try:
            means = fit(
                classifier,
                samples.inputs,
                samples.labels,
                environments,
                draws=draws,
                device=device,
                after_epoch=look,
            )
        except ValueError as error:
            if not _has_diverged(classifier.tap):
                raise
            raise DivergedError("the features stopped being finite.") from error
    if not all(bool(weights.isfinite().all()) for weights in model.parameters()):
        raise DivergedError("the weights stopped being finite.")
    return reported(means)


def _has_diverged(tap: FeatureTap) -> bool:
    try:
        features = tap.features.float()
    except RuntimeError:  # the network has not run
        return False
    # PFDL's penalty takes the fourth power of features; those for which it overflows have diverged,
    # too.
    return not bool((features.abs() < torch.finfo(features.dtype).max ** 0.25).all())


def _centre_classes(
    _: nn.Module, inputs: tuple[Any, ...], parts: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Give an objective the features with every class of the batch at its own mean."""
    features = parts["features"]
    members = F.one_hot(inputs[1]).to(features.dtype)
    means = members.T @ features / members.sum(0)[:, None].clamp(min=1)
    return inputs, {**parts, "features": features - means[inputs[1]]}


def mixed_precision(device: str, precision: str) -> torch.autocast:
    """Return a context in which bf16 means convolutions in bfloat16; that is for GPUs alone."""
    is_mixed = device.startswith("cuda") and precision == "bf16"
    return torch.autocast(torch.device(device).type, torch.bfloat16, enabled=is_mixed)


def predict_classes(
    model: nn.Module,
    inputs: Tensor,
    *,
    device: str = "cpu",
    batch_size: int = 512,
    precision: str = "bf16",
) -> Tensor:
    """Return the predicted class of each input, shape (n,), on the CPU; the model keeps its
    mode.
    """
    with mixed_precision(device, precision):
        return run_model(model, inputs, device=device, batch_size=batch_size)[0].argmax(1)
