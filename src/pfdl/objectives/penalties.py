"""Penalties, terms of a loss that read the features.

IRM, V-REx and CORAL compare environments; CNBB's quantization and our covariance decorrelation do
not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl._internal.validation import check_count, check_matrix, check_number
from pfdl.decorrelation import PartialDecorrelation
from pfdl.decorrelation.distributed import Batch
from pfdl.decorrelation.functional import decorrelation_loss, decorrelation_parts
from pfdl.objectives.base import Penalty, sample_risks, scale_gradients

__all__ = [
    "CORAL",
    "IRM",
    "CovarianceDecorrelation",
    "EnvironmentPenalty",
    "Penalty",
    "Quantization",
    "VREx",
]


class EnvironmentPenalty(Penalty):
    """A penalty on what differs between training environments, with a weight that is switched on
    late.

    Such penalties are weighted so strongly that nothing would be learnt if they acted from the
    start. As in the published code of IRM, the weight is 1 for the first ``anneal`` training calls
    and ``weight`` from then on; the count of calls is part of ``state_dict()``.

    Args:
        weight: What the penalty is multiplied by after the annealing.
        anneal: Number of training calls before the weight takes effect.

    Raises:
        ValueError, TypeError: If an argument cannot be used.
    """

    needs: tuple[str, ...] = ("logits", "labels", "environments")
    compare: Callable[..., Tensor]
    """The penalty itself, without its weight; a method of each subclass that takes what it
    ``needs``.
    """

    def __init__(self, weight: float = 1.0, *, anneal: int = 0) -> None:
        super().__init__()
        check_number("weight", weight)
        check_count("anneal", anneal, 0)
        self.weight = weight
        self.anneal = anneal
        self.completed_calls = 0

    def current_weight(self) -> float:
        """Return the weight that the next call will use."""
        return self.weight if self.completed_calls >= self.anneal else 1.0

    def divisor(self) -> float:
        """Return the weight of the next call if it exceeds 1, as in the published code of IRM."""
        return max(1.0, self.current_weight())

    def forward(self, *batch: Tensor) -> Tensor:
        """Compare the environments of one batch.

        Args:
            *batch: What the penalty ``needs``, one row per sample; environments are integers of
              shape (n,).

        Returns:
            weight × the penalty, a scalar.
        """
        penalty = self.current_weight() * self.compare(*batch)
        if self.training:
            self.completed_calls += 1
        return penalty

    def get_extra_state(self) -> dict[str, Any]:
        """Return the count of training calls, for ``state_dict``."""
        return {"completed_calls": self.completed_calls}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take up what ``get_extra_state`` gave.

        Raises:
            ValueError: If it is not a count.
        """
        calls = state.get("completed_calls") if isinstance(state, Mapping) else None
        if isinstance(calls, bool) or not isinstance(calls, int) or calls < 0:
            raise ValueError(
                f"completed_calls in the state is {calls!r}; it must be a whole number of at"
                " least 0."
            )
        self.completed_calls = calls


class IRM(EnvironmentPenalty):
    r"""IRMv1, the practical form of Invariant Risk Minimization (Arjovsky et al., 2019).

    .. math:: \frac1E \sum_e \Big( \partial_s R_e(s \cdot z) \Big|_{s=1} \Big)^2

    with the risk :math:`R_e` of environment e and the logits z: the same classifier, here a mere
    scale s, should be optimal in every environment at once. ``weight`` and ``anneal`` as in
    :class:`EnvironmentPenalty`.

    Example:
        >>> import torch
        >>> penalty = IRM(weight=2.0)
        >>> logits, labels, environments = (
        ...     torch.tensor([1.0, -1.0]),
        ...     torch.tensor([1, 1]),
        ...     torch.tensor([0, 1]),
        ... )
        >>> penalty(logits, labels, environments)
        tensor(0.6068)
    """

    reference = "Arjovsky et al., 2019"

    def compare(self, logits: Tensor, labels: Tensor, environments: Tensor) -> Tensor:
        """Return the mean over environments of the squared derivative, without the weight."""
        return environment_means(scale_gradients(logits, labels), environments).square().mean()


class VREx(EnvironmentPenalty):
    r"""V-REx, the variance form of Risk Extrapolation (Krueger et al., 2021).

    .. math:: \frac1E \sum_e \Big( R_e - \frac1E \sum_{e'} R_{e'} \Big)^2

    with the risk :math:`R_e` of environment e. ``weight`` and ``anneal`` as in
    :class:`EnvironmentPenalty`.

    Example:
        >>> import torch
        >>> penalty = VREx(weight=4.0)
        >>> logits, labels, environments = (
        ...     torch.tensor([1.0, -1.0]),
        ...     torch.tensor([1, 1]),
        ...     torch.tensor([0, 1]),
        ... )
        >>> penalty(logits, labels, environments)  # the two risks differ by exactly 1
        tensor(1.0000)
    """

    reference = "Krueger et al., 2021"

    def compare(self, logits: Tensor, labels: Tensor, environments: Tensor) -> Tensor:
        """Return the population variance of the environments' risks, without the weight."""
        return environment_means(sample_risks(logits, labels), environments).var(correction=0)


class CORAL(EnvironmentPenalty):
    r"""Deep CORAL (Sun and Saenko, 2016): the features' covariances should agree between
    environments.

    .. math:: \operatorname*{mean}_{e < e'} \frac{1}{4p^2} \| C_e - C_{e'} \|_F^2

    with the covariance matrix :math:`C_e` of the features in environment e. An environment with a
    single sample in the batch has none and is left out; with fewer than two environments left the
    penalty is 0. ``weight`` and ``anneal`` as in :class:`EnvironmentPenalty`.
    """

    reference = "Sun and Saenko, 2016"
    needs = ("features", "environments")

    def compare(self, features: Tensor, environments: Tensor) -> Tensor:
        """Return the mean squared distance of the covariances, without the weight."""
        check_matrix("features", features)
        check_environments(environments, features.shape[:1])
        groups = [
            features[environments == environment] for environment in torch.unique(environments)
        ]
        covariances = [torch.cov(group.T) for group in groups if len(group) > 1]
        distances = [(a - b).square().sum() for a, b in combinations(covariances, 2)]
        if not distances:
            return features.new_zeros(())
        return torch.stack(distances).mean() / (4 * features.shape[1] ** 2)


class CovarianceDecorrelation(PartialDecorrelation):
    """Decorrelate by the covariance part of L_decorr alone, as strongly as PFDL acts; ours, not the
    paper's.

    L_decorr is made of products of means and of covariances, and these alone are about correlation
    (:func:`pfdl.decorrelation.functional.decorrelation_parts`). After a ReLU their gradient is tens
    to thousands of times shorter than that of L_decorr. Here the model follows it alone, multiplied
    at every step until it is as long as that of L_decorr at the features. A large network from
    scratch then learns sooner and ends no better, so this is for short trainings.

    The arguments are those of :class:`pfdl.PartialDecorrelation`, and ``weight`` is the strength
    relative to PFDL's at λ = 1. A function of the number of completed g-fits switches it off:
    ``weight=lambda fits: float(fits < 1000)``.

    Attributes:
        matched_weight: The λ that the last call chose; 0 if the gradient of the covariances was
            lost in rounding.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> decorrelate = CovarianceDecorrelation(num_features=4, hidden=8)
        >>> features = torch.randn(16, 4).relu().requires_grad_()
        >>> decorrelate(features).backward()
        >>> bool(decorrelate.matched_weight > 1)
        True
    """

    reference = "pfdl"
    matched_weight: Tensor | None = None

    def measure(self, u: Tensor, covariance: Tensor) -> Tensor:
        """Return what is minimised, before it is made as strong as L_decorr."""
        return covariance

    def metrics(self) -> dict[str, Tensor]:
        """Return what PFDL reports, and the weight that made this penalty as strong."""
        return super().metrics() | (
            {} if self.matched_weight is None else {"matched_weight": self.matched_weight}
        )

    def _penalise(self, u: Tensor, batch: Batch, weight: float) -> Tensor:
        leaf = u.detach().requires_grad_()
        with torch.enable_grad():
            correlated = self.decomposition(leaf)
            whole_loss = decorrelation_loss(leaf, correlated, center=self.center, batch=batch)
            level, covariance = decorrelation_parts(leaf, correlated, batch=batch)
            losses = whole_loss, self.measure(leaf, covariance)
            gradients = [torch.autograd.grad(loss, leaf, retain_graph=True)[0] for loss in losses]
        parts = {"level_part": level.detach(), "covariance_part": covariance.detach()}
        self.last = replace(
            self.last, decorrelation_loss=whole_loss.detach(), weight=weight, **parts
        )
        whole, part = (
            size.sqrt()
            for size in batch.average([gradient.square().sum() for gradient in gradients])
        )
        is_lost = part <= torch.finfo(u.dtype).eps * whole
        self.matched_weight = torch.where(is_lost, 0.0, whole / part)
        slope = ((u - u.detach()) * gradients[1]).sum()  # this gradient, and no graph through g
        return weight * self.matched_weight * (losses[1].detach() + slope)


class Quantization(Penalty):
    r"""Reward large features, which tanh bounds to ±1, so that they can be read as on or off (He et
    al., 2021).

    .. math:: -\text{weight} \sum_i \|f_i\|^2

    The sum is over batch and features, as in the public reimplementation of CNBB (changliu00/
    causal-semantic-generative-model), so that the weight belongs to a batch size and a width.

    Args:
        weight: 3e-6 in that reimplementation.
    """

    reference = "He et al., 2021"
    needs = ("features",)

    def __init__(self, weight: float = 3e-6) -> None:
        super().__init__()
        check_number("weight", weight)
        self.weight = weight

    def forward(self, features: Tensor) -> Tensor:
        """Return minus the weighted sum of squares of features, shape (n, p)."""
        check_matrix("features", features)
        return -self.weight * features.square().sum()


def check_environments(environments: Tensor, shape: tuple[int, ...]) -> None:
    """Raise unless ``environments`` is a tensor of this shape, that of the samples."""
    if not isinstance(environments, Tensor):
        raise TypeError(f"environments are a {type(environments).__name__}; give a torch.Tensor.")
    if environments.shape != shape:
        raise ValueError(
            f"environments have shape {tuple(environments.shape)} for {tuple(shape)} samples; "
            "give one integer per sample."
        )
    if bool((environments < 0).any()):
        raise ValueError(
            "environments go below 0, and −1 stands for unknown; number them from 0, and leave out"
            " the rest."
        )


def environment_means(values: Tensor, environments: Tensor) -> Tensor:
    """Return the mean of ``values`` in each environment that occurs.

    Args:
        values: One number per sample, shape (n,).
        environments: Integers of shape (n,).

    Returns:
        One mean per environment, in ascending order of their numbers.

    Raises:
        ValueError: If there is not one environment for each value.

    Example:
        >>> import torch
        >>> environment_means(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([7, 7, 2]))
        tensor([5., 2.])
    """
    check_environments(environments, values.shape)
    _, index, counts = torch.unique(environments, return_inverse=True, return_counts=True)
    # A product with the membership matrix, not a scatter: on a GPU its sums do not depend on the
    # order of threads.
    means: Tensor = values @ F.one_hot(index).to(values.dtype) / counts
    return means
