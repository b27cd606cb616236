"""Train one network on samples in memory: the library's loop with what experiments ask for beyond it.

Those are a layer other than the last as the features, features with every class at its own mean, and a training that
diverges as a result. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pfdl._internal.validation import check_choice, check_count
from pfdl.objectives import Objective, make_objective
from pfdl.vision import Classifier, TrainingConfig, fit
from pfdl.vision.features import FeatureTap
from pfdl.vision.pixels import normalise

SAMPLERS = ("shuffle", "groups", "classes")
PRECISIONS = ("bf16", "32")


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


@dataclass(frozen=True)
class TrainingSettings:
    """How one network is trained.

    Args:
        objective: A name for :func:`pfdl.make_objective`.
        settings: The settings of the objective's parts, by their names.
        layer: The linear layer whose input the objective sees as features: -1 for the last, -2 for the one before it.
        class_centred: Whether the objective sees the features with every class of a batch at its own mean.
        epochs: Passes over the training samples.
        decay_every: Epochs after which the learning rate falls to a tenth; None for half of the epochs.
        batch_size: Samples per step.
        learning_rate: Of SGD, at the start.
        momentum: Of SGD.
        weight_decay: Of SGD.
        sampler: ``"shuffle"``, every sample once an epoch; ``"groups"``, which draws all groups (one class in one
            environment) equally often; or ``"classes"``, which draws all classes equally often.
        precision: ``"bf16"``, convolutions in bfloat16 where they run on a GPU; or ``"32"``.
        seed: Of the first weights, the order and the augmentation.
    """

    objective: str = "erm"
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    layer: int = -1
    class_centred: bool = False
    epochs: int = 30
    decay_every: int | None = None
    batch_size: int = 64
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4
    sampler: str = "shuffle"
    precision: str = "bf16"
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs, 1)
        check_count("batch_size", self.batch_size, 2)
        check_choice("sampler", self.sampler, SAMPLERS)
        check_choice("precision", self.precision, PRECISIONS)


class Progress(NamedTuple):
    """What a training shows of itself after an epoch.

    Attributes:
        epoch: Epochs that are done.
        model: The network, in training mode.
        objective: What it is trained on.
        tap: Gives the features of the last forward pass.
        metrics: Mean over the epoch's batches of what the objective reports, such as ``effective_sample_size`` as a
            share of the batch.
    """

    epoch: int
    model: nn.Module
    objective: Objective
    tap: FeatureTap
    metrics: dict[str, float]


class BestWeights:
    """Remembers the weights of the epoch with the highest score.

    Attributes:
        scores: The highest score so far, and what decides between equal ones; empty before the first epoch.
        epoch: When it was reached.
        weights: A copy of the network's state then.
    """

    def __init__(self) -> None:
        self.scores: tuple[float, ...] = ()
        self.epoch = 0
        self.weights: dict[str, Tensor] = {}

    @property
    def score(self) -> float:
        """Return the highest score so far."""
        return self.scores[0]

    def offer(self, progress: Progress, *scores: float) -> None:
        """Keep the weights if their first score is higher than all before; between equal ones, if the next is."""
        if scores > self.scores:
            self.scores, self.epoch = scores, progress.epoch
            self.weights = {name: value.clone() for name, value in progress.model.state_dict().items()}


class DivergedError(ValueError):
    """Training ended in numbers that are not finite."""


def train(
    settings: TrainingSettings,
    model: nn.Module,
    samples: Samples,
    environments: Tensor,
    *,
    device: str = "cpu",
    after_epoch: Callable[[Progress], None] | None = None,
) -> dict[str, float]:
    """Train a network in place; the last epoch counts, nothing is selected.

    Args:
        settings: How to train.
        model: A classifier with a linear last layer.
        samples: The training samples.
        environments: What the objective may know of each sample's context, shape (n,).
        device: Where to compute.
        after_epoch: Called after every epoch; it may look, and must leave the network as it was.

    Returns:
        The metrics of the last epoch, see :class:`Progress`.

    Raises:
        DivergedError: If features or weights stopped being finite.
    """
    layer = [part for part in model.modules() if isinstance(part, nn.Linear)][settings.layer]
    torch.manual_seed(settings.seed)
    parts: dict[str, Any] = dict(settings.settings)
    objective = make_objective(settings.objective, layer.in_features, **parts)
    if settings.class_centred:
        objective.register_forward_pre_hook(_centre_classes, with_kwargs=True)
    classifier = Classifier(_config(settings, samples, device), backbone=model, objective=objective, layer=layer)

    def reported(means: Mapping[str, float]) -> dict[str, float]:
        batch = min(settings.batch_size, len(samples.labels))
        found = {name: means[name] for name in objective.metrics()}
        return {name: value / (batch if name == "effective_sample_size" else 1) for name, value in found.items()}

    def look(epoch: int, means: Mapping[str, float]) -> None:
        if after_epoch is not None:
            after_epoch(Progress(epoch, model, objective, classifier.tap, reported(means)))

    with classifier.tap:
        try:
            means = fit(classifier, samples.inputs, samples.labels, environments, device=device, after_epoch=look)
        except ValueError as error:
            if not _has_diverged(classifier.tap):
                raise
            raise DivergedError("the features stopped being finite.") from error
    if not all(bool(weights.isfinite().all()) for weights in model.parameters()):
        raise DivergedError("the weights stopped being finite.")
    return reported(means)


def _config(settings: TrainingSettings, samples: Samples, device: str) -> TrainingConfig:
    return TrainingConfig(
        "mlp",  # for a name: the network is the caller's
        epochs=settings.epochs,
        decay_every=settings.decay_every,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        sampler=settings.sampler,
        augment="flip-shift" if samples.inputs.dim() == 4 else "none",
        precision=settings.precision if device.startswith("cuda") else "32",
        seed=settings.seed,
    )


def _has_diverged(tap: FeatureTap) -> bool:
    try:
        features = tap.features.float()
    except RuntimeError:  # the network has not run
        return False
    # PFDL's penalty takes the fourth power of features; those for which it overflows have diverged, too.
    return not bool((features.abs() < torch.finfo(features.dtype).max ** 0.25).all())


def _centre_classes(_: nn.Module, inputs: tuple[Any, ...], parts: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Give an objective the features with every class of the batch at its own mean."""
    features, members = parts["features"], F.one_hot(inputs[1]).to(parts["features"].dtype)
    means = members.T @ features / members.sum(0)[:, None].clamp(min=1)
    return inputs, {**parts, "features": features - means[inputs[1]]}


def logits_of(model: nn.Module, batch: Tensor, precision: str = "bf16") -> Tensor:
    """Return the logits of images as bytes, or of other inputs, on their device."""
    pixels = normalise(batch)
    if pixels.dim() == 4 and pixels.is_cuda:
        pixels = pixels.contiguous(memory_format=torch.channels_last)
    with torch.autocast(pixels.device.type, torch.bfloat16, enabled=pixels.is_cuda and precision == "bf16"):
        logits: Tensor = model(pixels)
    return logits


@torch.no_grad()
def predict(
    model: nn.Module, inputs: Tensor, *, device: str = "cpu", batch_size: int = 512, precision: str = "bf16"
) -> Tensor:
    """Return the predicted class of each input, shape (n,), on the CPU; the model keeps its mode."""
    training = model.training
    model.eval()
    found = [logits_of(model, batch.to(device), precision).argmax(1) for batch in torch.split(inputs, batch_size)]
    model.train(training)
    return torch.cat(found).cpu()
