"""Train one network with all its data in memory: for experiments of very many trainings side by side on one device.

:mod:`pfdl.vision.training` is for a user's own training: it keeps a run folder, resumes in the middle of an epoch and
reads images from disk. Here a training that was killed is done again, the data lie on the device, and nothing is
written. The two are not one because of what a run folder and a trainer cost at the start and the end of a run: 1.1 s
for a ResNet-18, where this one takes 0.1; and a study is hundreds of small trainings side by side on one device
(``benchmarks/train_throughput.py``; the table is in ``docs/results/speed_cpu.md``). What is mathematics is the same
code in both: the objective, the feature tap, the augmentation and the normalisation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pfdl._internal.validation import check_choice, check_count
from pfdl.contexts import ContextSampler, context_sampler
from pfdl.contexts.balancing import has_several
from pfdl.objectives import Objective, make_objective
from pfdl.vision.features import FeatureTap, attach
from pfdl.vision.pixels import mirror_and_shift, normalise

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
    model.to(device).to(memory_format=torch.channels_last)
    layer = [part for part in model.modules() if isinstance(part, nn.Linear)][settings.layer]
    torch.manual_seed(settings.seed)
    parts: dict[str, Any] = dict(settings.settings)
    objective = make_objective(settings.objective, layer.in_features, **parts).to(device)
    torch.manual_seed(settings.seed)  # again: objectives draw unlike many numbers, and augmentation comes after them
    optimizer = torch.optim.SGD(
        model.parameters(), settings.learning_rate, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    decay_every = settings.decay_every or max(1, settings.epochs // 2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, decay_every, gamma=0.1)
    data = [part.to(device) for part in (samples.inputs, samples.labels, environments)]
    objective.weighting.prepare(*data[1:])
    metrics: dict[str, float] = {}
    grouped = None
    if settings.sampler == "groups" and has_several(environments):  # else in the order of plain training
        grouped = context_sampler(samples.labels, environments, seed=settings.seed)
    elif settings.sampler == "classes":  # classes take the place of contexts: one context would not be balanced
        grouped = context_sampler(torch.zeros_like(samples.labels), samples.labels, seed=settings.seed)
    with attach(model, layer) as tap:
        for epoch in range(settings.epochs):
            order = _order(settings, epoch, len(samples.labels), grouped).to(device)
            metrics = _pass(settings, epoch, model, tap, objective, optimizer, order, *data)
            schedule.step()
            if after_epoch is not None:
                after_epoch(Progress(epoch + 1, model, objective, tap, metrics))
    if not all(bool(weights.isfinite().all()) for weights in model.parameters()):
        raise DivergedError("the weights stopped being finite.")
    return metrics


def _pass(
    settings: TrainingSettings,
    epoch: int,
    model: nn.Module,
    tap: FeatureTap,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    order: Tensor,
    inputs: Tensor,
    labels: Tensor,
    environments: Tensor,
) -> dict[str, float]:
    """Train one epoch and return the means of what the objective reports."""
    model.train()
    whole = max(1, len(order) // settings.batch_size)
    reported: dict[str, list[Tensor]] = defaultdict(list)
    for rows in torch.split(order[: whole * settings.batch_size], settings.batch_size):
        batch = mirror_and_shift(inputs[rows]) if inputs.dim() == 4 else inputs[rows]
        logits = logits_of(model, batch, settings.precision)
        features = tap.features.float()
        if settings.class_centred:
            features = _within_classes(features, labels[rows])
        try:
            loss = objective(logits.float(), labels[rows], features=features, environments=environments[rows])
        except ValueError as error:
            # PFDL's penalty takes the fourth power of features; those for which it overflows have diverged, too.
            if bool((features.abs() < torch.finfo(features.dtype).max ** 0.25).all()):
                raise
            raise DivergedError(f"the features stopped being finite in epoch {epoch + 1}.") from error
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()
        for name, value in objective.metrics().items():
            reported[name].append(value.detach() / (len(rows) if name == "effective_sample_size" else 1))
    return {name: float(torch.stack(values).float().mean()) for name, values in reported.items()}


def _order(settings: TrainingSettings, epoch: int, samples: int, grouped: ContextSampler | None) -> Tensor:
    """Return which sample comes when in an epoch, as the seed and the epoch alone decide."""
    if grouped is not None:
        grouped.set_epoch(epoch)
        return torch.tensor(list(grouped))
    generator = torch.Generator().manual_seed(1_000_003 * settings.seed + epoch)
    return torch.randperm(samples, generator=generator)


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


def _within_classes(features: Tensor, labels: Tensor) -> Tensor:
    members = F.one_hot(labels).to(features.dtype)
    means: Tensor = members.T @ features / members.sum(0)[:, None].clamp(min=1)
    return features - means[labels]
