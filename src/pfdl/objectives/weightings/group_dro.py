"""Distributionally robust optimisation over groups."""

from __future__ import annotations

import torch
from torch import Tensor

from pfdl._internal.validation import check_number
from pfdl.objectives.weightings.groups import GroupWeighting, check_groups, group_counts, grown


class GroupDRO(GroupWeighting):
    r"""Give more weight to groups with a high loss (Sagawa et al., 2020); a group is one class in one context.

    Each group g has a share :math:`q_g`, all equal at the start. Each batch multiplies it by :math:`\exp(\eta R_g)`,
    with the group's risk in the batch, and normalises; the loss is :math:`\sum_g q_g R_g`. Groups that do not occur in
    a batch keep their share for later and do not count in it. The groups are those of :meth:`prepare`; others join
    with an average share when they are first seen. As long as all samples are in one context, shares and weights stay
    equal: there is no context to be robust to. To be robust to classes alone, give them as the contexts, too.

    Args:
        step_size: η.
    """

    needs = ("risks", "labels", "environments")
    reference = "Sagawa et al., 2020"

    def __init__(self, *, step_size: float = 0.01) -> None:
        super().__init__()
        check_number("step_size", step_size)
        self.step_size = step_size

    def prepare(self, labels: Tensor, environments: Tensor) -> None:
        """Start with equal shares for the groups of all training samples, unless shares were loaded."""
        if not self.table.numel():
            self.table = self._joined(*_known(labels, environments))

    def forward(self, risks: Tensor, labels: Tensor, environments: Tensor) -> Tensor:
        """Update the shares by the risks of a batch, shape (n,), and weigh each sample by its group's share.

        Raises:
            ValueError: If a context is unknown, a risk not finite, or the shapes do not fit; nothing has changed then.
        """
        labels, environments = _known(labels, environments)
        if not isinstance(risks, Tensor):
            raise TypeError(f"risks are a {type(risks).__name__}; give a torch.Tensor.")
        if risks.shape != labels.shape or not bool(torch.isfinite(risks).all()):
            raise ValueError(
                f"risks have shape {tuple(risks.shape)} for {len(labels)} samples, or are not finite; "
                "give one finite number per sample."
            )
        table = self._joined(labels, environments)
        several = (table > 0).any(0).sum() > 1  # contexts; a tensor, so that nothing waits for a GPU
        sizes = group_counts(labels, environments, table)
        if self.training:
            sums = torch.zeros_like(table).index_put_((labels, environments), risks.to(table), accumulate=True)
            # Groups absent from the batch have a mean of 0 here and so keep their share, up to the normalisation.
            logits = table.log() + several * self.step_size * sums / sizes.clamp(min=1)
            table = logits.flatten().softmax(0).view_as(logits)
            if not bool(torch.isfinite(table).all()):
                raise ValueError(f"risks go up to {risks.max().item():.3g}; the shares of the groups overflow.")
            self.table = table
        weights = (table / sizes.clamp(min=1))[labels, environments].to(risks.dtype)
        return self.finish(torch.where(several, weights, torch.ones_like(weights)))

    def _joined(self, labels: Tensor, contexts: Tensor) -> Tensor:
        """Return the table in which groups that were not seen before have an average share."""
        table = grown(self.table, labels, contexts)
        new = (group_counts(labels, contexts, table) > 0) & (table == 0)
        known = (table > 0).sum()
        shares = torch.where(new, 1 / known.clamp(min=1), table)
        return shares / shares.sum() if len(labels) else table


def _known(labels: Tensor, environments: Tensor) -> tuple[Tensor, Tensor]:
    labels, environments = check_groups(labels, environments)
    if bool((environments < 0).any()):
        raise ValueError("GroupDRO needs the context of every sample, and some are unknown (−1).")
    return labels, environments
