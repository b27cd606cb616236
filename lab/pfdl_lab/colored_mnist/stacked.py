"""Several restarts of one small network, trained side by side in one batched computation.

Only the networks are stacked (``torch.func``): their weights have one more dimension, so that ten
small products of matrices become one large one, and a single Adam updates them all; being
elementwise, it does to each what an Adam of its own would do. Each restart has its own
:class:`pfdl.Objective`, the same objects that any other loop uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pfdl.objectives.objective import Objective
from pfdl.objectives.risks import sample_risks
from pfdl_lab.colored_mnist.perceptron import MLP, Outputs


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


class StackedMLPs:
    """Networks of one shape as one: R restarts, each with its own inputs.

    Args:
        networks: The networks; their parameters are copied.
        device: Where to keep the stacked parameters.
    """

    def __init__(self, networks: Sequence[MLP], device: torch.device | str = "cpu") -> None:
        stacked, _ = torch.func.stack_module_state(list(networks))
        self.parameters = {
            name: value.detach().to(device).requires_grad_() for name, value in stacked.items()
        }
        # The skeleton lends its forward pass only; its own parameters are never used.
        self._skeleton = networks[0]
        self._outputs = torch.func.vmap(self._one)

    def __call__(self, inputs: Tensor) -> Outputs:
        """Return logits (R, n) and features (R, n, p) of inputs (R, n, d)."""
        outputs: tuple[Tensor, Tensor] = self._outputs(self.parameters, inputs)
        return Outputs(*outputs)

    def squared_norms(self) -> Tensor:
        """Return the sum of squares of each restart's parameters, shape (R,)."""
        return torch.stack(
            [value.flatten(1).square().sum(1) for value in self.parameters.values()]
        ).sum(0)

    def _one(self, parameters: dict[str, Tensor], inputs: Tensor) -> tuple[Tensor, Tensor]:
        outputs: Outputs = torch.func.functional_call(self._skeleton, parameters, (inputs,))
        return outputs.logits, outputs.features


def train_restarts(
    networks: StackedMLPs,
    objectives: Sequence[Objective],
    inputs: Tensor,
    labels: Tensor,
    environments: Tensor,
    config: FullBatchConfig,
    *,
    feature_rows: int,
    row_seed: int = 0,
    after_step: Callable[[int], None] | None = None,
) -> None:
    """Train all restarts, in place.

    Args:
        networks: The R networks.
        objectives: One for each restart.
        inputs: Shape (R, n, d).
        labels: Shape (R, n), 0 or 1.
        environments: Environment or context of each row, shape (R, n).
        config: Learning rate, weight decay and number of steps.
        feature_rows: How many rows a penalty on the features sees, drawn again in each step: it
            works on mini-batches, also where everything else takes the full batch.
        row_seed: Which rows are drawn.
        after_step: Called with the number of updates that are done.
    """
    optimizer = torch.optim.Adam(networks.parameters.values(), lr=config.lr)
    generator = torch.Generator().manual_seed(row_seed)
    rows_needed = any("features" in objective.needs for objective in objectives)
    for r, objective in enumerate(objectives):
        objective.weighting.prepare(labels[r].long(), environments[r])
    for step in range(config.steps - 1):
        logits, features = networks(inputs)
        if rows_needed:
            rows = torch.randperm(inputs.shape[1], generator=generator)[:feature_rows].to(
                inputs.device
            )
            features = features[:, rows]
        # Read before the objectives are called: a call may end the annealing of a weight.
        divisors = torch.tensor(
            [objective.divisor() for objective in objectives], device=inputs.device
        )
        losses = [
            objective(logits[r], labels[r], features=features[r], environments=environments[r])
            for r, objective in enumerate(objectives)
        ]
        # The restarts share no parameter: the gradient of the sum is the gradient of each.
        loss = torch.stack(losses).sum() + (config.l2 * networks.squared_norms() / divisors).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if after_step is not None:
            after_step(step + 1)


@torch.no_grad()
def measure(
    networks: StackedMLPs, inputs: Tensor, labels: Tensor
) -> tuple[list[float], list[float]]:
    """Return accuracy and mean risk of each restart on its own rows.

    Args:
        networks: The R networks.
        inputs: Shape (R, n, d).
        labels: Shape (R, n).

    Returns:
        R accuracies between 0 and 1, and R risks.
    """
    logits = networks(inputs).logits
    accuracy = ((logits > 0) == (labels > 0.5)).float().mean(1)
    risk = torch.stack(
        [sample_risks(one, of) for one, of in zip(logits, labels, strict=True)]
    ).mean(1)
    return accuracy.tolist(), risk.tolist()
