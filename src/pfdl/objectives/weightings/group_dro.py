"""Distributionally robust optimisation over groups."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pfdl.objectives.weightings.groups import GroupWeighting, group_counts


class GroupDRO(GroupWeighting):
    r"""Give more weight to groups with a high loss (Sagawa et al., 2020); a group is one class in one context.

    Each group g has a share :math:`q_g`, all equal at the start. Each batch multiplies it by :math:`\exp(\eta R_g)`,
    with the group's risk in the batch, and normalises; the loss is :math:`\sum_g q_g R_g`. Groups that do not occur in
    a batch keep their share for later and do not count in it. The groups are those of :meth:`prepare`; others join
    with an average share when they are first seen.

    Args:
        step_size: η.
    """

    needs = ("risks", "labels", "environments")
    reference = "Sagawa et al., 2020"

    def __init__(self, *, step_size: float = 0.01) -> None:
        super().__init__()
        if not math.isfinite(step_size) or step_size < 0:
            raise ValueError(f"step_size is {step_size}; give a finite number of at least 0.")
        self.step_size = step_size

    def prepare(self, labels: Tensor, environments: Tensor) -> None:
        """Start with equal shares for the groups of all training samples, unless shares were loaded."""
        if not self.table.numel():
            self._join(labels.long(), environments.long())

    def forward(self, risks: Tensor, labels: Tensor, environments: Tensor) -> Tensor:
        """Update the shares by the risks of a batch, shape (n,), and weigh each sample by its group's share."""
        if bool((environments < 0).any()):
            raise ValueError("GroupDRO needs the context of every sample, and some are unknown (−1).")
        labels, environments = labels.long(), environments.long()
        self._join(labels, environments)
        sizes = group_counts(labels, environments, self.table)
        if self.training:
            sums = torch.zeros_like(self.table).index_put_(
                (labels, environments), risks.to(self.table), accumulate=True
            )
            # Groups absent from the batch have a mean of 0 here and so keep their share, up to the normalisation.
            logits = self.table.log() + self.step_size * sums / sizes.clamp(min=1)
            self.table = logits.flatten().softmax(0).view_as(logits)
        return self.finish((self.table / sizes.clamp(min=1))[labels, environments].to(risks.dtype))

    def _join(self, labels: Tensor, contexts: Tensor) -> None:
        """Give groups that were not seen before an average share."""
        self.grow(labels, contexts)
        new = (group_counts(labels, contexts, self.table) > 0) & (self.table == 0)
        known = (self.table > 0).sum()
        shares = torch.where(new, 1 / known.clamp(min=1), self.table)
        self.table = shares / shares.sum()
