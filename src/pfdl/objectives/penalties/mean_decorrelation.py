"""PFDL's penalty with the mean of the other features in place of g."""

from __future__ import annotations

from torch import Tensor

from pfdl.decorrelation.distributed import Batch
from pfdl.decorrelation.functional import decorrelation_loss, mean_of_others
from pfdl.objectives.penalties.features import FeaturePenalty


class MeanDecorrelation(FeaturePenalty):
    r"""Penalise L_decorr with the mean of the other features in place of g's prediction: a control, not PFDL.

    .. math:: \frac1p \sum_j \Big( \frac1n \sum_i M_{ij}^2 \Big)^2, \qquad M_{ij} = \frac{1}{p-1} \sum_{k \ne j} U_{ik}

    It shows what of PFDL's effect needs a trained g. It has no parameters and costs O(n·p).

    Args:
        weight: What the penalty is multiplied by.
        synchronize: Under ``torch.distributed``, take all processes' batches for one while training.

    Example:
        >>> import torch
        >>> MeanDecorrelation()(torch.tensor([[1.0, 3.0], [0.0, -2.0]]))  # (3² + 2²)/2 and (1² + 0²)/2
        tensor(21.2500)
    """

    def measure(self, u: Tensor, batch: Batch) -> Tensor:
        """Return L_decorr of the features and the mean of the others."""
        return decorrelation_loss(u, mean_of_others(u), batch=batch)
