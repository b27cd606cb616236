"""The term of CNBB that makes features readable as on or off."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from pfdl._internal.validation import check_matrix, check_number
from pfdl.objectives.base import Penalty


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

    def recording_key(self) -> Hashable:
        """Return the weight."""
        return self.weight

    def forward(self, features: Tensor) -> Tensor:
        """Return minus the weighted sum of squares of features, shape (n, p)."""
        check_matrix("features", features)
        return -self.weight * features.square().sum()
