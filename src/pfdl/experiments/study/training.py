"""One short training for comparisons: everything in memory, the same for every method but the objective.

Unlike :mod:`pfdl.vision.training` it keeps nothing on disk. It is for studies of very many small trainings side by
side on one device, where a training that was killed is simply done again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pfdl._internal.validation import check_count
from pfdl.objectives import Objective, make_objective
from pfdl.vision.features import FeatureTap, attach
from pfdl.vision.pixels import mirror_and_shift, normalise


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
        objective_settings: The settings of each of its parts, by the name of the part.
        layer: The linear layer whose input the objective sees as features: -1 for the last, -2 for the one before it.
        class_centred: Whether the objective sees the features with every class of a batch at its own mean.
        epochs: Passes over the training samples; the learning rate falls to a tenth after half of them.
        batch_size: Samples per step.
        learning_rate: Of SGD.
        momentum: Of SGD.
        weight_decay: Of SGD.
        seed: Of the first weights, the order and the augmentation.
    """

    objective: str = "erm"
    objective_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    layer: int = -1
    class_centred: bool = False
    epochs: int = 30
    batch_size: int = 64
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs, 1)
        check_count("batch_size", self.batch_size, 2)


class Outcome(NamedTuple):
    """What came of a training.

    Attributes:
        accuracy: In percent, by test set.
        effective_sample_size: Of the last batch, as a part of it.
        diverged: Whether training ended in numbers that are not finite; the accuracies are those of what was left.
    """

    accuracy: dict[str, float]
    effective_sample_size: float
    diverged: bool


def train_and_test(
    settings: TrainingSettings,
    model: nn.Module,
    train: Samples,
    environments: Tensor,
    tests: Mapping[str, Samples],
    *,
    device: str = "cpu",
) -> Outcome:
    """Train a network and test it; the last epoch counts, nothing is selected.

    Args:
        settings: How to train.
        model: A classifier with a linear last layer; trained in place.
        train: The training samples.
        environments: What the objective is told of each sample's context, shape (n,).
        tests: Test sets by name.
        device: Where to compute; on a GPU convolutions run in bfloat16.

    Returns:
        The accuracies.
    """
    model.to(device).to(memory_format=torch.channels_last)
    layer = [part for part in model.modules() if isinstance(part, nn.Linear)][settings.layer]
    torch.manual_seed(settings.seed)
    objective = make_objective(settings.objective, layer.in_features, **dict[str, Any](settings.objective_settings)).to(
        device
    )
    optimizer = torch.optim.SGD(
        model.parameters(), settings.learning_rate, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, max(1, settings.epochs // 2), gamma=0.1)
    data = [part.to(device) for part in (train.inputs, train.labels, environments)]
    objective.weighting.prepare(*data[1:])
    diverged = False
    with attach(model, layer) as tap:
        for epoch in range(settings.epochs):
            diverged = not _pass(settings, epoch, model, tap, objective, optimizer, *data)
            if diverged:
                break
            schedule.step()
    accuracy = {name: _accuracy(model, test, device) for name, test in tests.items()}
    size = objective.weighting.effective_sample_size
    share = 1.0 if size is None else float(size) / min(settings.batch_size, len(train.labels))
    diverged = diverged or not all(bool(weights.isfinite().all()) for weights in model.parameters())
    return Outcome(accuracy, share, diverged)


def _pass(
    settings: TrainingSettings,
    epoch: int,
    model: nn.Module,
    tap: FeatureTap,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    inputs: Tensor,
    labels: Tensor,
    environments: Tensor,
) -> bool:
    """One epoch; False if the features stopped being finite numbers in it."""
    model.train()
    generator = torch.Generator().manual_seed(1_000_003 * settings.seed + epoch)
    order = torch.randperm(len(labels), generator=generator).to(labels.device)
    whole = max(1, len(order) // settings.batch_size)
    for rows in torch.split(order[: whole * settings.batch_size], settings.batch_size):
        batch = mirror_and_shift(inputs[rows]) if inputs.dim() == 4 else inputs[rows]
        logits = _logits(model, batch)
        features = tap.features.float()
        if settings.class_centred:
            features = _within_classes(features, labels[rows])
        try:
            loss = objective(logits.float(), labels[rows], features=features, environments=environments[rows])
        except ValueError:
            if bool(features.isfinite().all()):
                raise
            return False
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()
    return True


def _logits(model: nn.Module, batch: Tensor) -> Tensor:
    pixels = normalise(batch)
    if pixels.dim() == 4 and pixels.is_cuda:
        pixels = pixels.contiguous(memory_format=torch.channels_last)
    with torch.autocast(pixels.device.type, torch.bfloat16, enabled=pixels.is_cuda):
        logits: Tensor = model(pixels)
    return logits


def _within_classes(features: Tensor, labels: Tensor) -> Tensor:
    members = F.one_hot(labels).to(features.dtype)
    means: Tensor = members.T @ features / members.sum(0)[:, None].clamp(min=1)
    return features - means[labels]


@torch.no_grad()
def _accuracy(model: nn.Module, test: Samples, device: str) -> float:
    model.eval()
    found = torch.cat([_logits(model, batch.to(device)).argmax(1).cpu() for batch in torch.split(test.inputs, 512)])
    return 100 * float((found == test.labels).double().mean())
