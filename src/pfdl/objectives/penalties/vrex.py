"""Risk Extrapolation."""

from __future__ import annotations

from torch import Tensor

from pfdl.objectives.penalties.environments import EnvironmentPenalty
from pfdl.objectives.risks import sample_risks


class VREx(EnvironmentPenalty):
    r"""V-REx, the variance form of Risk Extrapolation (Krueger et al., 2021).

    .. math:: \frac1E \sum_e \Big( R_e - \frac1E \sum_{e'} R_{e'} \Big)^2

    with the risk :math:`R_e` of environment e. ``weight`` and ``anneal`` as in
    :class:`EnvironmentPenalty`.

    Example:
        >>> import torch
        >>> penalty = VREx(weight=4.0)
        >>> logits = torch.tensor([1.0, -1.0])
        >>> labels = torch.tensor([1, 1])
        >>> environments = torch.tensor([0, 1])
        >>> penalty(logits, labels, environments)  # the two risks differ by exactly 1
        tensor(1.0000)
    """

    reference = "Krueger et al., 2021"

    def compare(self, logits: Tensor, labels: Tensor, environments: Tensor) -> Tensor:
        """Return the population variance of the environments' risks, without the weight."""
        return self.average(sample_risks(logits, labels), environments).variance()
