"""Train one small network on full batches, as IRM's published code does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pfdl.objectives.objective import Objective
from pfdl.objectives.risks import sample_risks
from pfdl_lab.colored_mnist.perceptron import MLP


@dataclass(frozen=True)
class FullBatchConfig:
    """How a restart is trained: full batches, Adam, explicit weight decay.

    Attributes:
        hidden: Width of the hidden layers.
        l2: Weight of the sum of squares of all parameters, biases too.
        lr: Learning rate of Adam.
        steps: Number of passes. The last one only measures, like the published code, which prints
            the accuracy of a step before it updates.
    """

    hidden: int
    l2: float
    lr: float
    steps: int


def train(
    network: MLP,
    objective: Objective,
    inputs: Tensor,
    labels: Tensor,
    environments: Tensor,
    config: FullBatchConfig,
    *,
    feature_rows: int,
    row_seed: int = 0,
    after_step: Callable[[int], None] | None = None,
) -> None:
    """Train a network, in place.

    Args:
        network: The network.
        objective: What it minimises.
        inputs: Shape (n, d).
        labels: Shape (n,), 0 or 1.
        environments: Environment or context of each row, shape (n,).
        config: Learning rate, weight decay and number of steps.
        feature_rows: How many rows a penalty on the features sees, drawn again in each step: it
            works on mini-batches, also where everything else takes the full batch.
        row_seed: Which rows are drawn.
        after_step: Called with the number of updates that are done.
    """
    optimizer = torch.optim.Adam(network.parameters(), lr=config.lr)
    generator = torch.Generator().manual_seed(row_seed)
    objective.weighting.prepare(labels.long(), environments)
    for step in range(config.steps - 1):
        logits, features = network(inputs)
        if "features" in objective.needs:
            rows = torch.randperm(len(inputs), generator=generator)[:feature_rows]
            features = features[rows.to(inputs.device)]
        # Read before the objective is called: a call may end the annealing of a weight.
        l2 = config.l2 / objective.divisor()
        squares = torch.stack([weights.square().sum() for weights in network.parameters()])
        loss = objective(logits, labels, features=features, environments=environments)
        optimizer.zero_grad()
        (loss + l2 * squares.sum()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if after_step is not None:
            after_step(step + 1)


@torch.no_grad()
def measure(network: MLP, inputs: Tensor, labels: Tensor) -> tuple[float, float]:
    """Return accuracy in percent and mean risk."""
    logits = network(inputs).logits
    right = ((logits > 0) == (labels > 0.5)).float()
    return 100 * right.mean().item(), sample_risks(logits, labels).mean().item()
