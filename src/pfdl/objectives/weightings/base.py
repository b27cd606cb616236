"""What every weighting has in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from pfdl._internal.cuda_graphs import Captured
from pfdl._internal.modules import AtomicModule
from pfdl._internal.validation import is_plain_tensor
from pfdl.objectives.base import FromData


class Weighting(FromData, AtomicModule):
    """One weight per sample of the batch.

    A subclass says in ``needs`` which of a batch's tensors its ``forward`` takes, in order: ``"risks"`` (each sample's
    loss), ``"features"``, ``"logits"``, ``"labels"``, ``"environments"``, ``"indices"`` (the number of each sample in
    the training set); all of them come detached. Its ``forward`` makes one number per sample, not negative, and returns
    ``self.finish(...)`` of them: shape (n,), mean 1.

    Attributes:
        effective_sample_size: (Σw)²/Σw² of the last batch, a tensor on its device; None before the first batch. So
            many equally weighted samples would estimate the risk as precisely: n if all weights are equal, 1 if one
            sample has all the weight. A weighting that stays at n has done nothing; one that falls to a few samples
            makes the risk very noisy.
        effective_share: ``effective_sample_size`` over n, between 0 and 1, so that batches of different sizes compare.
    """

    needs: tuple[str, ...] = ("features",)
    reference: ClassVar[str] = ""
    """The paper, for ``pfdl list objectives``."""

    def __init__(self) -> None:
        super().__init__()
        self.captured = Captured()  # the inner loops of some weightings are hundreds of small launches
        self.effective_sample_size: Tensor | None = None
        self.effective_share: Tensor | None = None

    def prepare(self, labels: Tensor, environments: Tensor) -> None:
        """See the labels and environments of all training samples, shape (n,), before the first batch.

        Most weightings have no use for them. Calling it is optional, and once more after a checkpoint was loaded.
        """

    def fit(self, features: Tensor) -> None:
        """Learn from the features of all training samples, shape (n, p), in the order of their indices.

        For weightings that need ``"indices"``; the others have no use for it.
        """

    def divisor(self) -> float:
        """Return 1: a weighting does not scale the loss."""
        return 1.0

    def metrics(self) -> Mapping[str, Tensor]:
        """Return the effective sample size of the last batch, and its share of the batch."""
        if self.effective_sample_size is None or self.effective_share is None:
            return {}
        return {"effective_sample_size": self.effective_sample_size, "effective_share": self.effective_share}

    def finish(self, weights: Tensor) -> Tensor:
        """Note the effective sample size and scale the weights to a mean of 1; how every ``forward`` ends."""
        self.effective_sample_size = weights.sum().square() / weights.square().sum()
        self.effective_share = self.effective_sample_size / max(1, len(weights))
        return weights / weights.mean()


def check_state(name: str, value: object, dimensions: int) -> None:
    """Raise unless a value of a state is a tensor of finite floating-point numbers with so many dimensions."""
    if not is_plain_tensor(value) or value.dim() != dimensions or not value.is_floating_point():
        what = f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"{name} in the state is {what}; it must have floating-point numbers in {dimensions} dimensions."
        )
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} in the state has a NaN or an infinity; all values must be finite.")
