"""The perceptron of Colored-MNIST, which gives features beside its logits."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Outputs(NamedTuple):
    """What a network says about a batch.

    Attributes:
        logits: Shape (n,) for two classes.
        features: What enters the last layer, shape (n, p).
    """

    logits: Tensor
    features: Tensor


class MLP(nn.Module):
    """The perceptron of IRM's Colored-MNIST: two hidden layers, ReLU, Xavier weights, biases that
    start at zero.

    Args:
        num_inputs: Width of the flattened input.
        hidden: Width of both hidden layers.
    """

    def __init__(self, num_inputs: int, hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(num_inputs, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, 1)
        for layer in (self.first, self.second, self.last):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, inputs: Tensor) -> Outputs:
        """Compute logits and features of inputs, shape (n, num_inputs)."""
        features = torch.relu(self.second(torch.relu(self.first(inputs))))
        return Outputs(self.last(features).squeeze(-1), features)
