"""What every weighting has in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from pfdl.objectives.base import FromData


class Weighting(FromData, nn.Module):
    """One weight per sample of the batch.

    A subclass says in ``needs`` which of a batch's tensors its ``forward`` takes, in order: ``"risks"`` (each sample's
    loss), ``"features"``, ``"logits"``, ``"labels"``, ``"environments"``; all of them come detached. Its ``forward``
    makes one number per sample, not negative, and returns ``self.finish(...)`` of them: shape (n,), mean 1.

    Attributes:
        effective_sample_size: (Σw)²/Σw² of the last batch, a tensor on its device: n if all weights are equal, 1 if
            one sample has all of it. None before the first batch.
    """

    needs: tuple[str, ...] = ("features",)
    reference: ClassVar[str] = ""
    """The paper, for ``pfdl list objectives``."""

    def __init__(self) -> None:
        super().__init__()
        self.effective_sample_size: Tensor | None = None

    def prepare(self, labels: Tensor, environments: Tensor) -> None:
        """See the labels and environments of all training samples, shape (n,), before the first batch.

        Most weightings have no use for them. Calling it is optional, and once more after a checkpoint was loaded.
        """

    def divisor(self) -> float:
        """Return 1: a weighting does not scale the loss."""
        return 1.0

    def metrics(self) -> Mapping[str, Tensor]:
        """Return the effective sample size of the last batch."""
        size = self.effective_sample_size
        return {} if size is None else {"effective_sample_size": size}

    def finish(self, weights: Tensor) -> Tensor:
        """Note the effective sample size and scale the weights to a mean of 1; how every ``forward`` ends."""
        self.effective_sample_size = weights.sum().square() / weights.square().sum()
        return weights / weights.mean()
