"""A penalty on the level of the features."""

from __future__ import annotations

from torch import Tensor

from pfdl.decorrelation.distributed import Batch
from pfdl.objectives.penalties.features import FeaturePenalty


class Level(FeaturePenalty):
    r"""Penalise the level of the features, without a network g: a control for PFDL, not PFDL.

    .. math:: \Big( \frac1n \sum_i \bar u_i^2 \Big)^2, \qquad \bar u_i = \frac1p \sum_j U_{ij}

    A shared g cannot know which feature it predicts, so its best guess is close to a common level of the sample; then
    PFDL's penalty is close to this one (``docs/explanation/method.md``). It has no parameters and costs O(n·p).

    Args:
        weight: What the penalty is multiplied by.
        synchronize: Under ``torch.distributed``, take all processes' batches for one while training.

    Example:
        >>> import torch
        >>> Level()(torch.tensor([[1.0, 3.0], [0.0, -2.0]]))  # mean features 2 and -1
        tensor(6.2500)
    """

    def measure(self, u: Tensor, batch: Batch) -> Tensor:
        """Return the squared mean square of the samples' mean features."""
        return batch.mean(u.mean(1).square()).square()
