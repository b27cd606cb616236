"""Penalties and weightings, and the two weightings that others are made of."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from pfdl._internal.cuda_graphs import Captured
from pfdl.decorrelation.part import Part


class Penalty(Part):
    """A scalar term of the training loss.

    A subclass says in ``needs`` which of a batch's tensors its ``forward`` takes, in order: ``"features"``,
    ``"logits"``, ``"labels"``, ``"environments"``. Its ``forward`` returns a differentiable scalar, already
    multiplied by the penalty's own weight.
    """


class Weighting(Part):
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

        Called before each epoch if ``needs`` names ``"indices"``; a weighting that learns from each batch has no use
        for it.
        """

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


class Uniform(Weighting):
    """Weights of 1: the risk is the plain mean, as in empirical risk minimisation."""

    needs = ("risks",)

    def forward(self, risks: Tensor) -> Tensor:
        """Return ones in the shape of the risks."""
        return self.finish(torch.ones_like(risks))


class Product(Weighting):
    """Multiply several weightings, each of which learns by itself.

    Args:
        factors: The weightings.
    """

    def __init__(self, factors: Iterable[Weighting]) -> None:
        super().__init__()
        self.factors = nn.ModuleList(factors)
        self.needs = tuple(dict.fromkeys(name for factor in self._factors() for name in factor.needs))

    def forward(self, *tensors: Tensor) -> Tensor:
        """Return one weight per sample, from the tensors that the factors need."""
        batch = dict(zip(self.needs, tensors, strict=True))
        before = copy.deepcopy(self.state_dict())
        try:
            weights = [factor(*(batch[name] for name in factor.needs)) for factor in self._factors()]
            return self.finish(torch.stack(weights).prod(0))
        except Exception:
            self.load_state_dict(before)  # one factor may have learnt from a batch that another refused
            raise

    def prepare(self, labels: Tensor, environments: Tensor) -> None:
        """Prepare every factor."""
        for factor in self._factors():
            factor.prepare(labels, environments)

    def fit(self, features: Tensor) -> None:
        """Fit every factor."""
        for factor in self._factors():
            factor.fit(features)

    def _factors(self) -> list[Weighting]:
        return [factor for factor in self.factors if isinstance(factor, Weighting)]
