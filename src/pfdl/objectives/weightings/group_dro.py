"""The worst group counts most."""

from __future__ import annotations

import torch
from torch import Tensor

from pfdl._internal.cuda_graphs import may_look
from pfdl._internal.validation import check_number
from pfdl.objectives.risks import check_risks
from pfdl.objectives.weightings.groups import (
    GroupWeighting,
    check_groups,
    group_counts,
    group_sums,
    grown,
)


class GroupDRO(GroupWeighting):
    r"""Give more weight to groups with a high loss (Sagawa et al., 2020); a group is one class in
    one context.

    Each group g has a share :math:`q_g`, all equal at the start. Each batch multiplies it by
    :math:`\exp(\eta (R_g + C/\sqrt{n_g}))`, with the group's risk in the batch (0 if it is not in
    it) and its number of training samples, and normalises. The loss is :math:`\sum_g q_g R_g` over
    the groups of the batch, divided by the sum of their shares: a batch that lacks groups counts as
    much as any other. The authors' code does not divide, so that such a batch counts less;
    ``renormalize=False`` is that. Shares are kept as logarithms, so that none is lost to underflow.

    The groups are those of :meth:`prepare`; others join with an average share when they are first
    seen. As long as all samples are in one context, shares and weights stay equal: there is no
    context to be robust to. To be robust to classes alone, give them as the contexts, too.

    Args:
        step_size: η.
        adjustment: C, which makes the smaller groups count more, because a network fits them too
            well; the authors try 0 to 5. It needs :meth:`prepare` for :math:`n_g`. The authors'
            code adds :math:`\sum_g q_g C/\sqrt{n_g}` to the loss it returns, which has no gradient
            and is left out here.
        renormalize: What a batch without a group does to the loss. By default nothing: the weights
            of every batch have mean 1. With False the loss misses that group's share, as in the
            authors' code: the mean weight is the sum of the shares of the groups that the batch
            has. Multiplied by another weighting, weights always have mean 1.
    """

    needs = ("risks", "labels", "environments")
    sized_by_data = ("table", "log_shares")
    reference = "Sagawa et al., 2020"
    log_shares: Tensor

    def __init__(
        self, *, step_size: float = 0.01, adjustment: float = 0.0, renormalize: bool = True
    ) -> None:
        super().__init__()
        check_number("step_size", step_size)
        check_number("adjustment", adjustment)
        self.step_size = step_size
        self.adjustment = adjustment
        self.renormalize = renormalize
        # Of groups that have samples in the table
        self.register_buffer("log_shares", torch.zeros(0, 0))

    @property
    def shares(self) -> Tensor:
        """Return the share of each group, shape (classes, contexts); 0 for those without
        samples.
        """
        return torch.where(self.table > 0, self.log_shares.exp(), 0.0)

    def prepare(self, labels: Tensor, environments: Tensor) -> None:
        """Count the groups of all training samples; those without a share yet join with an average
        one.
        """
        labels, environments = check_groups(labels, environments, all_known=True)
        before = grown(self.table, labels, environments)
        counts = group_counts(labels, environments, before)
        log_shares = grown(self.log_shares, labels, environments)
        self.log_shares = _join(log_shares, before > 0, counts > 0)
        self.table = torch.where(counts > 0, counts, before)
        self._prepared = True

    def forward(self, risks: Tensor, labels: Tensor, environments: Tensor) -> Tensor:
        """Update the shares by the risks of a batch, shape (n,), and weigh each sample by its
        group's share.

        Raises:
            ValueError: If a context is unknown, a risk not finite, the shapes do not fit, or an
                adjustment was asked for without :meth:`prepare`; nothing has changed then.
        """
        labels, environments = check_groups(labels, environments, all_known=True)
        check_risks(risks, len(labels))
        if self.adjustment and not self._prepared:
            raise ValueError(
                f"adjustment is {self.adjustment}, which needs the sizes of the groups; call"
                " prepare(labels, contexts) with those of all training samples first."
            )
        before = grown(self.table, labels, environments)
        sizes = group_counts(labels, environments, before)
        counts = before if self._prepared else before + sizes
        log_shares = grown(self.log_shares, labels, environments)
        log_shares = _join(log_shares, before > 0, sizes > 0)
        seen = (counts > 0) | (sizes > 0)
        several = seen.any(0).sum() > 1  # contexts; a tensor, so that nothing waits for a GPU
        if self.training:
            # Groups absent from the batch have a mean of 0 here and so keep their share, up to the
            # normalisation.
            mean_risks = group_sums(risks, labels, environments, counts) / sizes.clamp(min=1)
            gain = mean_risks + self.adjustment * counts.clamp(min=1).rsqrt()
            log_shares = _normalize(log_shares + several * self.step_size * gain, seen)
            self._keep(torch.where(seen, counts.clamp(min=1), 0.0), log_shares, risks)
        share_present = torch.where(sizes > 0, log_shares, -torch.inf).flatten().logsumexp(0)
        of_group = (log_shares - share_present).exp() / sizes.clamp(min=1)
        weights = of_group[labels, environments].to(risks.dtype)
        weights = self.finish(torch.where(several, weights, torch.ones_like(weights)))
        if self.renormalize:
            return weights
        return weights * torch.where(several, share_present.exp(), 1.0).to(weights)

    def _keep(self, table: Tensor, log_shares: Tensor, risks: Tensor) -> None:
        """Take up the new table and shares: in place, where a recorded step will look for them."""
        if may_look() and not bool(torch.isfinite(log_shares).all()):
            raise ValueError(
                f"risks go up to {risks.max().item():.3g}; the shares of the groups overflow."
            )
        if may_look() and table.shape != self.table.shape:
            self.table = torch.zeros_like(table)
            self.log_shares = torch.zeros_like(log_shares)
        self.table.copy_(table)
        self.log_shares.copy_(log_shares)

    def check_loaded(self) -> None:
        """Refuse shares that are none of the groups in the table."""
        super().check_loaded()
        if self.log_shares.shape != self.table.shape or bool((self.log_shares > 1e-3).any()):
            raise ValueError(
                "log_shares in the state do not fit its table: one logarithm of a share, at most 0,"
                " per group."
            )


def _join(log_shares: Tensor, seen: Tensor, present: Tensor) -> Tensor:
    """Return log-shares in which groups that are present and were not seen before have an average
    share.
    """
    average = -seen.sum().clamp(min=1).log().to(log_shares)
    joined = torch.where(present & ~seen, average, log_shares)
    return _normalize(joined, seen | present)


def _normalize(log_shares: Tensor, seen: Tensor) -> Tensor:
    """Return log-shares whose shares sum to 1 over the groups seen; 0 for the others, which have
    none.
    """
    if not log_shares.numel():
        return log_shares
    total = torch.where(seen, log_shares, -torch.inf).flatten().logsumexp(0)
    return torch.where(seen, log_shares - total, 0.0)
