"""One short training for comparisons: everything in memory, the same for every method but the objective.

Unlike :mod:`pfdl.training` it keeps nothing on disk. It is for studies of very many small trainings side by side on one
device, where a training that was killed is simply done again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pfdl._validation import check_choice, check_count
from pfdl.data.context_images import HIDDEN_CONTEXT
from pfdl.objective import Objective, make_objective
from pfdl.pixels import mirror_and_shift, normalise
from pfdl.scenes import infer_contexts
from pfdl.taps import FeatureTap, attach
from pfdl.weightings import Balance

ENVIRONMENTS = ("hidden", "inferred", "known")


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
class Contest:
    """How one network is trained.

    Args:
        objective: See :func:`pfdl.objective.make_objective`.
        settings: Likewise.
        environments: What the objective is told of contexts: nothing; groups that :func:`pfdl.infer_contexts` found; or
            the truth, which makes it an oracle.
        contexts: How many groups are looked for; None leaves that to :func:`pfdl.infer_contexts`.
        look_after: Epochs of plain training after which the network's features are looked at; None to look at the
            inputs themselves, before training, which is for inputs that are features of a pretrained network.
        epochs: Passes over the training samples; the learning rate falls to a tenth after half of them.
        batch_size: Samples per step.
        learning_rate: Of SGD.
        momentum: Of SGD.
        weight_decay: Of SGD.
        seed: Of the first weights, the order and the augmentation.
    """

    objective: str = "erm"
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    environments: str = "hidden"
    contexts: int | None = None
    look_after: int | None = 2
    epochs: int = 30
    batch_size: int = 64
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("environments", self.environments, ENVIRONMENTS)
        check_count("epochs", self.epochs, 1)
        check_count("batch_size", self.batch_size, 2)


class Outcome(NamedTuple):
    """What came of a training.

    Attributes:
        accuracy: In percent, by test set.
        groups: The groups that were inferred, shape (n,); None if none were.
        effective_sample_size: Of the last batch, as a part of it.
    """

    accuracy: dict[str, float]
    groups: Tensor | None
    effective_sample_size: float


def compete(
    contest: Contest, model: nn.Module, train: Samples, tests: Mapping[str, Samples], *, device: str = "cpu"
) -> Outcome:
    """Train a network and test it; the last epoch counts, nothing is selected.

    Args:
        contest: How to train.
        model: A classifier with a linear last layer; trained in place.
        train: The training samples.
        tests: Test sets by name.
        device: Where to compute; on a GPU convolutions run in bfloat16.

    Returns:
        The accuracies.
    """
    model.to(device).to(memory_format=torch.channels_last)
    tap = attach(model)
    torch.manual_seed(contest.seed)
    if tap.num_features is None:
        raise AssertionError(tap.layer_name)  # without a layer's name only linear layers are found
    objective = make_objective(contest.objective, tap.num_features, **dict(contest.settings)).to(device)
    plain = Objective()
    optimizer = torch.optim.SGD(
        model.parameters(), contest.learning_rate, momentum=contest.momentum, weight_decay=contest.weight_decay
    )
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, max(1, contest.epochs // 2), gamma=0.1)
    inputs, labels = train.inputs.to(device), train.labels.to(device)
    environments = _told_at_the_start(contest, train).to(device)
    for epoch in range(contest.epochs):
        if contest.environments == "inferred" and epoch == contest.look_after:
            environments = _infer(contest, _features(model, tap, inputs), labels)
        revealed = contest.environments == "hidden" or bool(environments[0] != HIDDEN_CONTEXT)
        _pass(contest, epoch, model, tap, objective if revealed else plain, optimizer, inputs, labels, environments)
        schedule.step()
    accuracy = {name: _accuracy(model, test, device) for name, test in tests.items()}
    tap.detach()
    size = objective.weighting.effective_sample_size
    share = 1.0 if size is None else float(size) / min(contest.batch_size, len(labels))
    return Outcome(accuracy, environments.cpu() if contest.environments == "inferred" else None, share)


def _told_at_the_start(contest: Contest, train: Samples) -> Tensor:
    if contest.environments == "known":
        return train.contexts
    if contest.environments == "inferred" and contest.look_after is None:
        return _infer(contest, train.inputs, train.labels)
    return torch.full_like(train.labels, HIDDEN_CONTEXT)


def _infer(contest: Contest, features: Tensor, labels: Tensor) -> Tensor:
    groups = infer_contexts(features.cpu(), labels.cpu(), contexts=contest.contexts, seed=contest.seed)
    return torch.from_numpy(groups).to(labels.device)


def _pass(
    contest: Contest,
    epoch: int,
    model: nn.Module,
    tap: FeatureTap,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    inputs: Tensor,
    labels: Tensor,
    environments: Tensor,
) -> None:
    """One epoch."""
    model.train()
    if isinstance(objective.weighting, Balance) and not objective.weighting.counts.numel():
        objective.weighting.count(labels, environments)
    generator = torch.Generator().manual_seed(1_000_003 * contest.seed + epoch)
    order = torch.randperm(len(labels), generator=generator).to(labels.device)
    whole = max(1, len(order) // contest.batch_size)
    for rows in torch.split(order[: whole * contest.batch_size], contest.batch_size):
        batch = mirror_and_shift(inputs[rows]) if inputs.dim() == 4 else inputs[rows]
        logits = _logits(model, batch)
        loss = objective(logits.float(), labels[rows], features=tap.features.float(), environments=environments[rows])
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()


def _logits(model: nn.Module, batch: Tensor) -> Tensor:
    pixels = normalise(batch)
    if pixels.dim() == 4 and pixels.is_cuda:
        pixels = pixels.contiguous(memory_format=torch.channels_last)
    with torch.autocast(pixels.device.type, torch.bfloat16, enabled=pixels.is_cuda):
        logits: Tensor = model(pixels)
    return logits


@torch.no_grad()
def _features(model: nn.Module, tap: FeatureTap, inputs: Tensor) -> Tensor:
    model.eval()
    parts = []
    for batch in torch.split(inputs, 512):
        _logits(model, batch)
        parts.append(tap.features.float())
    return torch.cat(parts)


@torch.no_grad()
def _accuracy(model: nn.Module, test: Samples, device: str) -> float:
    model.eval()
    found = torch.cat([_logits(model, batch.to(device)).argmax(1).cpu() for batch in torch.split(test.inputs, 512)])
    return 100 * float((found == test.labels).double().mean())
