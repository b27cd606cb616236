"""The base classes of penalties and of weightings."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from pfdl._internal.cuda_graphs import Captured
from pfdl.parts import Part


class Penalty(Part):
    """A scalar term of the training loss.

    A subclass says in ``needs`` which of a batch's tensors its ``forward`` takes, in order:
    ``"features"``, ``"logits"``, ``"labels"``, ``"environments"``. Its ``forward`` returns a
    differentiable scalar, already multiplied by the penalty's own weight.
    """


class Weighting(Part):
    """One weight per sample of the batch.

    A subclass says in ``needs`` which of a batch's tensors its ``forward`` takes, in order:
    ``"risks"`` (each sample's loss), ``"features"``, ``"logits"``, ``"labels"``,
    ``"environments"``, ``"indices"`` (the number of each sample in the training set); all of them
    come detached. Its ``forward`` makes one number per sample, not negative, and returns
    ``self.finish(...)`` of them: shape (n,), mean 1.

    Attributes:
        effective_sample_size: (Σw)²/Σw² of the last batch, a tensor on its device; None before the
            first batch. So many equally weighted samples would estimate the risk as precisely: n if
            all weights are equal, 1 if one sample has all the weight. A weighting that stays at n
            has done nothing; one that falls to a few samples makes the risk very noisy.
        effective_share: ``effective_sample_size`` over n, between 0 and 1, so that batches of
            different sizes compare.
        learnt: What else is logged of the weights, by name.
    """

    def __init__(self) -> None:
        super().__init__()
        # The inner loops of some weightings are hundreds of small launches
        self.captured = Captured()
        self.effective_sample_size: Tensor | None = None
        self.effective_share: Tensor | None = None
        self.learnt: dict[str, Tensor] = {}

    def fit(self, features: Tensor) -> None:
        """Learn from the features of all training samples, shape (n, p), in the order of their
        indices.

        Called before each epoch if ``needs`` names ``"indices"``; a weighting that learns from each
        batch has no use for it.
        """

    def metrics(self) -> Mapping[str, Tensor]:
        """Return the effective sample size of the last batch, its share of the batch, and what was
        learnt.
        """
        if self.effective_sample_size is None or self.effective_share is None:
            return {}
        sizes = {
            "effective_sample_size": self.effective_sample_size,
            "effective_share": self.effective_share,
        }
        return sizes | self.learnt

    def finish(self, weights: Tensor) -> Tensor:
        """Note the effective sample size and scale the weights to a mean of 1; how every
        ``forward`` ends.
        """
        self.effective_sample_size = weights.sum().square() / weights.square().sum()
        self.effective_share = self.effective_sample_size / len(weights)
        return weights / weights.mean()
