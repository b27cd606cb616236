"""What the last call of a penalty saw."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pfdl.decorrelation.functional import levels_of


@dataclass(frozen=True)
class Diagnostics:
    """What the last call saw, as tensors on the device: reading a number is what waits for the device.

    A call keeps sums that it has made anyway, in memory that nothing changes; all else is computed when it is read.

    Attributes:
        decorrelation_loss: L_decorr, without its weight.
        weight: What L_decorr was multiplied by.
        unexplained: L_g of each feature, shape (p,).
        variance: The variance of each feature over the batch that g was fitted to, shape (p,).
        sums: Σ_i Ũ_ij M_ij, Σ_i Ũ_ij and Σ_i u_ij over the samples i, shape (3, p), where M_ij is the mean of the other
            features; None for the pairwise form.
        samples: How many samples the sums are over.
        centred: Whether M is of centred features.
    """

    decorrelation_loss: Tensor | None = None
    weight: float | None = None
    unexplained: Tensor | None = None
    variance: Tensor | None = None
    sums: Tensor | None = None
    samples: int = 0
    centred: bool = False

    @property
    def decomposition_loss(self) -> Tensor | None:
        """Return L_g of the last g-step, before its update."""
        return None if self.unexplained is None else self.unexplained.mean()

    @cached_property
    def levels(self) -> Tensor | None:
        """Return the level term of each feature's c_j, shape (p,); None for the pairwise form."""
        if self.sums is None:
            return None
        _, mean_correlated, mean_features = self.sums / self.samples
        return levels_of(mean_features, mean_correlated)

    @property
    def covariances(self) -> Tensor | None:
        """Return the covariance term of each feature's c_j, shape (p,); None for the pairwise form."""
        if self.levels is None or self.sums is None:
            return None
        # The levels are those of the features as they are, whether or not the loss centres them.
        cross = self.sums[0] / self.samples
        return cross if self.centred else cross - self.levels

    @property
    def r2(self) -> Tensor | None:
        """Return the R² of g for each feature on the last batch it was fitted to, before the update.

        1: wholly predictable from the others, 0: no better than its mean. NaN for a feature that was constant.
        """
        if self.unexplained is None or self.variance is None:
            return None
        return torch.where(self.variance > 0, 1 - self.unexplained / self.variance, torch.nan)

    @property
    def explained(self) -> Tensor | None:
        """Return the share of all the features' variance that g explained on that batch.

        Not the mean of ``r2``: one nearly constant feature would drown the others.
        """
        if self.unexplained is None or self.variance is None:
            return None
        return 1 - self.unexplained.sum() / self.variance.sum()

    @property
    def level_part(self) -> Tensor | None:
        """Return L_decorr with only its level terms, see :func:`pfdl.decorrelation.functional.decorrelation_parts`."""
        return None if self.levels is None else self.levels.square().mean()

    @property
    def covariance_part(self) -> Tensor | None:
        """Return L_decorr with covariance terms only, see :func:`pfdl.decorrelation.functional.decorrelation_parts`."""
        covariances = self.covariances
        return None if covariances is None else covariances.square().mean()

    def summary(self) -> dict[str, float]:
        """Return the numbers worth logging; ``r2`` is :attr:`explained`."""
        numbers = {
            "decomposition_loss": self.decomposition_loss,
            "decorrelation_loss": self.decorrelation_loss,
            "level_part": self.level_part,
            "covariance_part": self.covariance_part,
            "weight": self.weight,
            "r2": self.explained,
        }
        return {name: float(value) for name, value in numbers.items() if value is not None}


@dataclass(frozen=True)
class GradientParts:
    """Gradients of L_decorr and of its two parts at the features, each of shape (n, p), without the weight.

    Attributes:
        whole: The gradient of L_decorr.
        level: The gradient of its level part.
        covariance: The gradient of its covariance part.
        lengths: The norms of the three over the samples of all processes, shape (3,).
    """

    whole: Tensor
    level: Tensor
    covariance: Tensor
    lengths: Tensor

    def shares(self) -> dict[str, Tensor]:
        """Return how long the gradients of the parts are, as shares of the whole's length, by names for a log."""
        whole, level, covariance = self.lengths
        size = whole.clamp(min=torch.finfo(whole.dtype).tiny)
        return {"level_gradient": level / size, "covariance_gradient": covariance / size}

    def summary(self) -> dict[str, float]:
        """Return the norms of the three and the cosines of the parts with the whole."""
        parts = {"level": self.level, "covariance": self.covariance}
        norms = {"norm": self.whole.norm(), **{f"{name}_norm": part.norm() for name, part in parts.items()}}
        cosines = {f"{name}_cosine": _cosine(part, self.whole) for name, part in parts.items()}
        return {name: float(value) for name, value in {**norms, **cosines}.items()}


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0)
