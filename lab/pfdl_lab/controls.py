"""Rivals of the published penalty: controls for a claim, not PFDL."""

from __future__ import annotations

import torch
from torch import Tensor

from pfdl import register_objective
from pfdl._internal.validation import check_features, check_number
from pfdl.decorrelation.functional import decorrelation_loss, mean_of_others
from pfdl.objectives.penalties import CovarianceDecorrelation, Penalty
from pfdl.objectives.weightings import DWR
from pfdl.objectives.weightings.dwr import decorrelating_weights
from pfdl_lab.gradients import level_loss


class Level(Penalty):
    r"""Penalise the level of the features, without a network g: a control for PFDL, not PFDL.

    .. math:: \Big( \frac1n \sum_i \bar u_i^2 \Big)^2, \qquad \bar u_i = \frac1p \sum_j U_{ij}

    A shared g cannot know which feature it predicts, so its best guess is close to a common level
    of the sample; then PFDL's penalty is close to this one. It has no parameters and costs O(n·p).

    Args:
        weight: What the penalty is multiplied by.

    Raises:
        ValueError: If the weight is negative or not finite.

    Example:
        >>> import torch
        >>> Level()(torch.tensor([[1.0, 3.0], [0.0, -2.0]]))  # mean features 2 and -1
        tensor(6.2500)
    """

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        check_number("weight", weight)
        self.weight = weight
        self.value: Tensor | None = None

    def forward(self, features: Tensor) -> Tensor:
        """Return weight × the penalty of a batch of features, shape (n, p), a scalar."""
        check_features("features", features)
        # The penalty is of the fourth order in the features: half precision would overflow.
        value = self.measure(
            features.float() if features.dtype in (torch.float16, torch.bfloat16) else features
        )
        self.value = value.detach()
        return self.weight * value

    measure = staticmethod(level_loss)
    """The penalty without its weight."""

    def metrics(self) -> dict[str, Tensor]:
        """Return the penalty of the last call, without its weight."""
        return {} if self.value is None else {f"L_{type(self).__name__.lower()}": self.value}


class MeanDecorrelation(Level):
    r"""Penalise L_decorr with the mean of the other features in place of g's prediction: a control,
    not PFDL.

    .. math::
        \frac1p \sum_j \Big( \frac1n \sum_i M_{ij}^2 \Big)^2, \qquad
        M_{ij} = \frac{1}{p-1} \sum_{k \ne j} U_{ik}

    It shows what of PFDL's effect needs a trained g. It has no parameters and costs O(n·p).

    Args:
        weight: What the penalty is multiplied by.

    Example:
        >>> MeanDecorrelation()(
        ...     torch.tensor([[1.0, 3.0], [0.0, -2.0]])
        ... )  # (3² + 2²)/2 and (1² + 0²)/2
        tensor(21.2500)
    """

    @staticmethod
    def measure(features: Tensor) -> Tensor:
        """Return L_decorr of the features and the mean of the others."""
        return decorrelation_loss(features, mean_of_others(features))


class MatchedLevel(CovarianceDecorrelation):
    """Follow the level penalty, which has no g, as strongly as PFDL follows its own with a g
    trained alongside.
    """

    def measure(self, u: Tensor, covariance: Tensor) -> Tensor:
        """Return the level penalty."""
        return level_loss(u)


class PublishedDWR(DWR):
    """Learn the weights of DWR by the published solver, to its own stop or limit, before every 40th
    epoch.

    Published are weights that are learnt once, on features that stay. Those of a network change; in
    between the weights stay.
    """

    def __init__(self, *, steps: int = 5000, every: int = 40) -> None:
        super().__init__(steps=steps)
        self.every = every
        self.epoch = 0

    def fit(self, features: Tensor) -> None:
        """Learn the weights if this is the epoch for it."""
        if self.epoch % self.every == 0:
            super().fit(features)
        self.epoch += 1

    def solve(self, columns: Tensor) -> Tensor:
        """Return the weights of standardised columns, shape (n, p)."""
        return decorrelating_weights(columns, steps=self.steps, tol=self.tol).weights


LEVEL_MATCHED = "matched-level"
MEAN = "mean-decorrelation"
register_objective("dwr-published", PublishedDWR)
register_objective("level", Level)
register_objective(LEVEL_MATCHED, MatchedLevel)
register_objective(MEAN, MeanDecorrelation)
