"""The risk of each sample, the penalties that compare risks, and the weightings that weigh them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pfdl._internal.cuda_graphs import Captured
from pfdl.decorrelation.part import Part


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

    def prepare(self, labels: Tensor, environments: Tensor) -> None:
        """See the labels and environments of all training samples, shape (n,), before the first
        batch.

        Most weightings have no use for them. Calling it is optional, and once more after a
        checkpoint was loaded.
        """

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
        self.needs = tuple(
            dict.fromkeys(name for factor in self._factors() for name in factor.needs)
        )

    def forward(self, *tensors: Tensor) -> Tensor:
        """Return one weight per sample, from the tensors that the factors need."""
        batch = dict(zip(self.needs, tensors, strict=True))
        before = copy.deepcopy(self.state_dict())
        try:
            weights = [
                factor(*(batch[name] for name in factor.needs)) for factor in self._factors()
            ]
            self.learnt = {
                name: value for factor in self._factors() for name, value in factor.learnt.items()
            }
            return self.finish(torch.stack(weights).prod(0))
        except Exception:
            # One factor may have learnt from a batch that another refused
            self.load_state_dict(before)
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


def sample_risks(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Return the classification loss of each sample.

    Args:
        logits: Shape (n,) or (n, 1) for two classes (logistic loss), (n, c) for c classes
            (cross-entropy).
        labels: Shape (n,); 0 or 1 of any dtype for two classes, integer class indices for c
            classes.
        label_smoothing: Share of the target that is spread over all classes, from 0 to below 1.

    Returns:
        One loss per sample, shape (n,).

    Raises:
        ValueError: If the shapes do not fit together.

    Example:
        >>> import torch
        >>> sample_risks(torch.tensor([[0.0], [0.0]]), torch.tensor([0, 1]))
        tensor([0.6931, 0.6931])
    """
    scores, classes = _by_class(logits, labels)
    return F.cross_entropy(scores, classes, reduction="none", label_smoothing=label_smoothing)


def scale_gradients(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Return how each sample's risk would change if its logits were scaled: :math:`\partial_s
    \ell(s z, y)` at s = 1.

    In closed form it is :math:`\langle z, \nabla_z \ell(z, y) \rangle`, that is Σ_c (softmax(z)_c −
    1[y = c]) z_c, so that no second pass of automatic differentiation is needed.

    Args:
        logits: As for :func:`sample_risks`.
        labels: As for :func:`sample_risks`.

    Returns:
        One derivative per sample, shape (n,).

    Raises:
        ValueError: If the shapes do not fit together.
    """
    scores, classes = _by_class(logits, labels)
    of_label = scores.gather(1, classes[:, None]).squeeze(1)
    return (torch.softmax(scores, dim=1) * scores).sum(1) - of_label


def _by_class(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (n, classes) and integer labels (n,); one score per sample is that of class 1,
    class 0 has 0.
    """
    for name, value in {"logits": logits, "labels": labels}.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} are a {type(value).__name__}; give a torch.Tensor.")
    if logits.ndim not in (1, 2) or labels.ndim != 1 or len(logits) != len(labels):
        raise ValueError(
            f"logits have shape {tuple(logits.shape)} and labels {tuple(labels.shape)}; "
            "give logits (n,), (n, 1) or (n, classes) and labels (n,)."
        )
    if logits.ndim == 2 and logits.shape[1] > 1:
        return logits, labels
    return F.pad(logits.reshape(-1, 1), (1, 0)), labels.long()
