"""The worst samples of a batch count."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from pfdl._internal.validation import check_number
from pfdl.objectives.base import Weighting
from pfdl.objectives.risks import check_risks


class CVaR(Weighting):
    r"""Train on the samples of a batch with the highest loss; no groups or contexts needed (Levy et
    al., 2020).

    The loss is the mean over the share α of the batch with the highest risks (CVaR-DRO): with n
    samples the worst :math:`\lfloor \alpha n \rfloor` weigh :math:`1/\alpha`, the next one what is
    left, all others 0.

    Args:
        share: α, above 0 and up to 1; with 1 it is plain risk minimisation.
    """

    needs = ("risks",)
    reference = "Levy et al., 2020"

    def __init__(self, *, share: float = 0.2) -> None:
        super().__init__()
        check_number("share", share)
        if not 0 < share <= 1:
            raise ValueError(
                f"share is {share}; give the part of a batch that counts, above 0 and up to 1."
            )
        self.share = share

    def recording_key(self) -> Hashable:
        """Return the share."""
        return self.share

    def forward(self, risks: Tensor) -> Tensor:
        """Weigh a batch by its risks, shape (n,)."""
        check_risks(risks)
        rank = risks.argsort(descending=True, stable=True).argsort()
        return self.finish((self.share * len(risks) - rank).clamp(0, 1).to(risks))
