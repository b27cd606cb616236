"""What penalties on the features alone have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from pfdl._internal.processes import world_size
from pfdl._internal.validation import check_features, check_matrix, check_number
from pfdl.decorrelation.distributed import Batch, join_batches
from pfdl.objectives.penalties.base import Penalty


class FeaturePenalty(Penalty, ABC):
    """A weight times a function of the features of a batch.

    While training under ``torch.distributed`` it is that of the union of all processes' batches, as for
    :class:`pfdl.PartialDecorrelation`.

    Args:
        weight: What the penalty is multiplied by.
        synchronize: Under ``torch.distributed``, take all processes' batches for one while training. All processes
            must then make the same calls.

    Raises:
        ValueError: If the weight is negative or not finite.
    """

    sums_over_processes = True

    def __init__(self, weight: float = 1.0, *, synchronize: bool = True) -> None:
        super().__init__()
        check_number("weight", weight)
        self.weight = weight
        self.synchronize = synchronize
        self.value: Tensor | None = None

    def forward(self, features: Tensor) -> Tensor:
        """Return weight × the penalty of a batch of features, shape (n, p), a scalar."""
        if self.synchronize and self.training and world_size() > 1:
            problem = None
            try:
                check_matrix("features", features)
            except (TypeError, ValueError) as error:
                problem = error
            batch = join_batches(0 if problem else len(features), problem)
        else:
            check_features("features", features)
            batch = Batch(len(features))
        # The penalties are of the fourth order in the features: half precision would overflow.
        u = features.float() if features.dtype in (torch.float16, torch.bfloat16) else features
        value = self.measure(u, batch)
        self.value = value.detach()
        return self.weight * value

    @abstractmethod
    def measure(self, u: Tensor, batch: Batch) -> Tensor:
        """Return the penalty without its weight; how each subclass defines itself."""

    def metrics(self) -> dict[str, Tensor]:
        """Return the penalty of the last call, without its weight."""
        return {} if self.value is None else {f"L_{type(self).__name__.lower()}": self.value}

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"weight={self.weight}"
