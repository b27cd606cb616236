"""Penalties, weightings, what they have in common, and what they may know of the data."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pfdl._internal.cuda_graphs import Captured
from pfdl._internal.loading import AtomicModule, copy_like
from pfdl._internal.validation import is_plain_tensor


@dataclass(frozen=True)
class DataShape:
    """What a part of an objective may know of the data when it is built.

    Args:
        num_features: p, the width of the embedding.
        num_classes: Number of classes; None if not known yet.
        num_contexts: Number of contexts; None if not known yet, as before they are inferred.
    """

    num_features: int
    num_classes: int | None = None
    num_contexts: int | None = None


class Part(AtomicModule):
    """What :class:`pfdl.objectives.penalties.Penalty` and :class:`pfdl.objectives.weightings.Weighting` share.

    Under ``torch.distributed`` a part is called with the samples of all processes, and so needs to know nothing of
    them, unless it ``sums_over_processes`` itself.
    """

    __call__: Callable[..., Tensor]
    needs: tuple[str, ...] = ("features",)
    """Which tensors of a batch ``forward`` is called with, in this order: any of ``"features"``, ``"logits"``,
    ``"labels"``, ``"environments"``, and for weightings ``"risks"`` and ``"indices"``."""

    reference: ClassVar[str] = ""
    """The paper, for ``pfdl list objectives``."""

    sums_over_processes: ClassVar[bool] = False
    """Whether its ``forward`` joins the batches of all processes itself; then it is called with those of its own."""

    @classmethod
    def from_data(cls, shape: DataShape, **settings: Any) -> Any:
        """Build the part for data of this shape; override it to use the shape."""
        return cls(**settings)

    def divisor(self) -> float:
        """Return what the whole loss is divided by, so that a large weight does not enlarge its gradient."""
        return 1.0

    def metrics(self) -> Mapping[str, Tensor]:
        """Return what is worth logging of the last call, as scalars on its device; by default nothing."""
        return {}


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

    sized_by_data: ClassVar[tuple[str, ...]] = ()
    """Buffers whose size follows from the data, and so is taken from a state that is loaded."""

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

    def check_loaded(self) -> None:
        """Raise ValueError if the buffers, just loaded from a state, do not fit together; the state is then refused."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, own in list(self.named_buffers(recurse=False)):
            saved = state_dict.get(prefix + name, own)
            if name in self.sized_by_data and is_plain_tensor(saved) and saved.dim() == own.dim():
                own = own.new_empty(saved.shape)
                setattr(self, name, own)
            copy_like(own, saved, f"{prefix}{name} in the state")
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self.check_loaded()


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
