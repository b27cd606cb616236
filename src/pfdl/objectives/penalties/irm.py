"""Invariant Risk Minimization."""

from __future__ import annotations

from torch import Tensor

from pfdl.objectives.penalties.environments import Compared, EnvironmentPenalty
from pfdl.objectives.risks import scale_gradients


class IRM(EnvironmentPenalty):
    r"""IRMv1, the practical form of Invariant Risk Minimization (Arjovsky et al., 2019).

    .. math:: \frac1E \sum_e \Big( \partial_s R_e(s \cdot z) \Big|_{s=1} \Big)^2

    with the risk :math:`R_e` of environment e and the logits z: the same classifier, here a mere
    scale s, should be optimal in every environment at once. ``weight`` and ``anneal`` as in
    :class:`EnvironmentPenalty`.

    Example:
        >>> import torch
        >>> penalty = IRM(weight=2.0)
        >>> logits = torch.tensor([1.0, -1.0])
        >>> labels = torch.tensor([1, 1])
        >>> environments = torch.tensor([0, 1])
        >>> penalty(logits, labels, environments)
        tensor(0.6068)
    """

    reference = "Arjovsky et al., 2019"

    def compare(self, logits: Tensor, labels: Tensor, environments: Tensor) -> Tensor:
        """Return the mean over environments of the squared derivative, without the weight."""
        slopes = self.average(scale_gradients(logits, labels), environments)
        return Compared(slopes.values.square(), slopes.counts).mean()
