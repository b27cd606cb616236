"""A penalty on the level of the features."""

from __future__ import annotations

import torch
from torch import Tensor

from pfdl._internal.validation import check_features, check_number
from pfdl.objectives.penalties.base import Penalty


class Level(Penalty):
    r"""Penalise the level of the features, without a network g: a control for PFDL, not PFDL.

    .. math:: \Big( \frac1n \sum_i \bar u_i^2 \Big)^2, \qquad \bar u_i = \frac1p \sum_j U_{ij}

    A shared g cannot know which feature it predicts, so its best guess is close to a common level of the sample; then
    PFDL's penalty is close to this one. It has no parameters and costs O(n·p).

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
        value = self.measure(features.float() if features.dtype in (torch.float16, torch.bfloat16) else features)
        self.value = value.detach()
        return self.weight * value

    def measure(self, u: Tensor) -> Tensor:
        """Return the squared mean square of the samples' mean features."""
        return u.mean(1).square().mean().square()

    def metrics(self) -> dict[str, Tensor]:
        """Return the penalty of the last call, without its weight."""
        return {} if self.value is None else {f"L_{type(self).__name__.lower()}": self.value}
