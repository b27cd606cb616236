"""The conditional value at risk: the mean loss of the worst samples, whatever their group."""

from __future__ import annotations

import torch
from torch import Tensor

from pfdl._internal.validation import check_number
from pfdl.objectives.base import Weighting


class CVaR(Weighting):
    r"""Train on the samples of a batch with the highest loss; no groups or contexts needed (Levy et al., 2020).

    The loss is the mean over the share α of the batch with the highest risks (CVaR-DRO): with n samples the worst
    :math:`\lfloor \alpha n \rfloor` weigh :math:`1/\alpha`, the next one what is left, all others 0.

    Args:
        share: α, above 0 and up to 1; with 1 it is plain risk minimisation.
    """

    needs = ("risks",)
    reference = "Levy et al., 2020"

    def __init__(self, *, share: float = 0.2) -> None:
        super().__init__()
        check_number("share", share)
        if not 0 < share <= 1:
            raise ValueError(f"share is {share}; give the part of a batch that counts, above 0 and up to 1.")
        self.share = share

    def forward(self, risks: Tensor) -> Tensor:
        """Weigh a batch by its risks, shape (n,)."""
        if not isinstance(risks, Tensor) or risks.dim() != 1 or not bool(torch.isfinite(risks).all()):
            raise ValueError("risks are not one finite number per sample; give a tensor of shape (n,).")
        rank = risks.argsort(descending=True, stable=True).argsort()
        return self.finish((self.share * len(risks) - rank).clamp(0, 1).to(risks))
