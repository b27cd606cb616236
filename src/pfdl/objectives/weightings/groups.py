"""Weightings over groups, one class in one context each: all equally frequent, or the worst first;
and over samples.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl._internal.validation import check_number
from pfdl.objectives.base import Weighting

SMOOTHING = 0.25
"""With it no sample counts more than five times as much as one of a group of average size."""

MOST_GROUPS = 10**7
"""Groups a table may have: class and context numbers are its indices, so they should be small and
without gaps.
"""


class GroupWeighting(Weighting):
    """A weighting that keeps one number per group in ``table``, shape (classes, contexts).

    The table grows with the classes and contexts that are seen, so that neither must be known in
    advance; it is part of ``state_dict()``. A context of −1 means that it is unknown: such samples
    are not part of any group.
    """

    needs: tuple[str, ...] = ("labels", "environments")
    sized_by_data: ClassVar[tuple[str, ...]] = ("table",)
    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(0, 0))
        self._prepared = False  # whether the table has counts of all training samples

    def check_loaded(self) -> None:
        """Refuse counts that are none."""
        if self.table.numel() > MOST_GROUPS or bool((self.table < 0).any()):
            raise ValueError(
                "table in the state has negative numbers or too many; it is one number per group."
            )


class Balance(GroupWeighting):
    """Weigh samples so that every context has the same share of every class.

    The weights undo the correlation of class and context in the training data, and leave each class
    its frequency. The counts behind them are those of :meth:`prepare`, or else of the samples seen
    so far in training. Contexts may be known, or come from :func:`pfdl.infer_contexts`; samples
    whose context is −1 weigh 1.

    Args:
        smoothing: What is added to the count of each group, as a part of the mean count of its
            class's groups; with 0 the balance is exact and a few stray samples may outweigh their
            class.
        equal_classes: Whether the classes get equal shares, too.
    """

    def __init__(self, *, smoothing: float = SMOOTHING, equal_classes: bool = False) -> None:
        super().__init__()
        check_number("smoothing", smoothing)
        self.smoothing = smoothing
        self.equal_classes = equal_classes

    def prepare(self, labels: Tensor, environments: Tensor) -> None:
        """Count all training samples, shape (n,), at once: from then on the weights of a sample
        stay the same.
        """
        labels, environments = check_groups(labels, environments)
        known = environments >= 0
        table = grown(self.table.new_zeros(0, 0), labels[known], environments[known])
        self.table = table + group_counts(labels[known], environments[known], table)
        self._prepared = True

    def forward(self, labels: Tensor, environments: Tensor) -> Tensor:
        """Weigh a batch of labels and contexts, shape (n,); count it, unless all samples were
        counted before.
        """
        labels, environments = check_groups(labels, environments)
        known = environments >= 0
        table = grown(self.table, labels[known], environments[known])
        if self.training and not self._prepared:
            table = self.table = table + group_counts(labels[known], environments[known], table)
        weights = torch.ones(len(labels), device=labels.device)
        if table.numel():
            of_group = balancing_table(table, self.smoothing)
            if self.equal_classes:
                of_group = (
                    of_group / table.sum(1, keepdim=True).clamp(min=1) * table.sum() / len(table)
                )
            weights[known] = of_group[labels[known], environments[known]]
        return self.finish(weights)


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
        self.log_shares = _join(
            grown(self.log_shares, labels, environments), before > 0, counts > 0
        )
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
        if not isinstance(risks, Tensor):
            raise TypeError(f"risks are a {type(risks).__name__}; give a torch.Tensor.")
        if risks.shape != labels.shape or not bool(torch.isfinite(risks).all()):
            raise ValueError(
                f"risks have shape {tuple(risks.shape)} for {len(labels)} samples, or are not"
                " finite; give one finite number per sample."
            )
        if self.adjustment and not self._prepared:
            raise ValueError(
                f"adjustment is {self.adjustment}, which needs the sizes of the groups; call"
                " prepare(labels, contexts) with those of all training samples first."
            )
        counts = grown(self.table, labels, environments)
        sizes = group_counts(labels, environments, counts)
        log_shares = _join(grown(self.log_shares, labels, environments), counts > 0, sizes > 0)
        counts = counts if self._prepared else counts + sizes
        seen = (counts > 0) | (sizes > 0)
        several = seen.any(0).sum() > 1  # contexts; a tensor, so that nothing waits for a GPU
        if self.training:
            sums = torch.zeros_like(counts).index_put_(
                (labels, environments), risks.to(counts), accumulate=True
            )
            # Groups absent from the batch have a mean of 0 here and so keep their share, up to the
            # normalisation.
            gain = sums / sizes.clamp(min=1) + self.adjustment * counts.clamp(min=1).rsqrt()
            log_shares = _normalize(log_shares + several * self.step_size * gain, seen)
            if not bool(torch.isfinite(log_shares).all()):
                raise ValueError(
                    f"risks go up to {risks.max().item():.3g}; the shares of the groups overflow."
                )
            self.table, self.log_shares = torch.where(seen, counts.clamp(min=1), 0.0), log_shares
        present = torch.where(sizes > 0, log_shares, -torch.inf).flatten().logsumexp(0)
        weights = ((log_shares - present).exp() / sizes.clamp(min=1))[labels, environments].to(
            risks.dtype
        )
        weights = self.finish(torch.where(several, weights, torch.ones_like(weights)))
        return (
            weights
            if self.renormalize
            else weights * torch.where(several, present.exp(), 1.0).to(weights)
        )

    def check_loaded(self) -> None:
        """Refuse shares that are none of the groups in the table."""
        super().check_loaded()
        if self.log_shares.shape != self.table.shape or bool((self.log_shares > 1e-3).any()):
            raise ValueError(
                "log_shares in the state do not fit its table: one logarithm of a share, at most 0,"
                " per group."
            )


def balancing_table(counts: Tensor, smoothing: float = SMOOTHING) -> Tensor:
    """Return the weight of a sample of each group.

    Args:
        counts: Samples of each class in each context, shape (classes, contexts).
        smoothing: What is added to each count, as a part of the mean count of its class; so a few
            stray samples do not outweigh their class.

    Returns:
        The same shape. The mean over the samples of a class is 1.

    Example:
        >>> balancing_table(torch.tensor([[6.0, 2.0], [1.0, 1.0]]), smoothing=0.0)
        tensor([[0.6667, 2.0000],
                [1.0000, 1.0000]])
    """
    of_class = counts.sum(1, keepdim=True).clamp(min=1)
    own, mean = 1 / (1 + smoothing), smoothing / (1 + smoothing)  # so that no smoothing overflows
    table = 1 / (own * counts + mean * of_class / counts.shape[1]).clamp(
        min=torch.finfo(counts.dtype).tiny
    )
    table = torch.where(counts > 0, table, 1.0)  # of an empty group nothing is known
    return (
        table
        * of_class
        / (table * counts).sum(1, keepdim=True).clamp(min=torch.finfo(counts.dtype).tiny)
    )


def grown(table: Tensor, labels: Tensor, contexts: Tensor) -> Tensor:
    """Return the table with room for all groups of these labels and contexts; new entries are 0.

    Raises:
        ValueError: If the numbers are too large for a table.
    """
    if not len(labels):
        return table
    sizes = [
        max(int(new.max()) + 1, old)
        for new, old in zip((labels, contexts), table.shape, strict=True)
    ]
    if sizes[0] * sizes[1] > MOST_GROUPS:
        raise ValueError(
            f"labels go up to {sizes[0] - 1} and contexts up to {sizes[1] - 1}: more than"
            f" {MOST_GROUPS} groups; number both from 0 without gaps."
        )
    rows, columns = table.shape
    return F.pad(table.to(labels.device), (0, sizes[1] - columns, 0, sizes[0] - rows))


def check_groups(
    labels: Tensor, environments: Tensor, *, all_known: bool = False
) -> tuple[Tensor, Tensor]:
    """Return labels and environments as whole numbers of shape (n,), or say what is wrong with
    them.
    """
    for name, value in {"labels": labels, "environments": environments}.items():
        if not isinstance(value, Tensor) or value.dim() != 1 or value.is_complex():
            what = (
                f"shape {tuple(value.shape)}"
                if isinstance(value, Tensor)
                else f"type {type(value).__name__}"
            )
            raise ValueError(f"{name} have {what}; give one whole number per sample, shape (n,).")
    if len(labels) != len(environments):
        raise ValueError(
            f"there are {len(labels)} labels and {len(environments)} environments; give as many of"
            " each."
        )
    whole = labels.long(), environments.long()
    if not all(
        torch.equal(a, b.to(a.dtype)) for a, b in zip((labels, environments), whole, strict=True)
    ):
        raise ValueError("labels and environments must be whole numbers.")
    if bool((whole[0] < 0).any()):
        raise ValueError(f"labels go down to {int(labels.min())}; number the classes from 0.")
    if all_known and bool((whole[1] < 0).any()):
        raise ValueError("GroupDRO needs the context of every sample, and some are unknown (−1).")
    return whole


def group_counts(labels: Tensor, contexts: Tensor, like: Tensor) -> Tensor:
    """Count the samples of each group, in the shape of the table ``like``."""
    counts = torch.zeros_like(like)
    counts.index_put_(
        (labels, contexts), torch.ones_like(labels, dtype=like.dtype), accumulate=True
    )
    return counts


def _join(log_shares: Tensor, seen: Tensor, found: Tensor) -> Tensor:
    """Return log-shares in which groups that are found and were not seen before have an average
    share.
    """
    joined = torch.where(found & ~seen, -seen.sum().clamp(min=1).log().to(log_shares), log_shares)
    return _normalize(joined, seen | found)


def _normalize(log_shares: Tensor, seen: Tensor) -> Tensor:
    """Return log-shares whose shares sum to 1 over the groups seen; 0 for the others, which have
    none.
    """
    if not log_shares.numel():
        return log_shares
    total = torch.where(seen, log_shares, -torch.inf).flatten().logsumexp(0)
    return torch.where(seen, log_shares - total, 0.0)


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

    def forward(self, risks: Tensor) -> Tensor:
        """Weigh a batch by its risks, shape (n,)."""
        if (
            not isinstance(risks, Tensor)
            or risks.dim() != 1
            or not bool(torch.isfinite(risks).all())
        ):
            raise ValueError(
                "risks are not one finite number per sample; give a tensor of shape (n,)."
            )
        rank = risks.argsort(descending=True, stable=True).argsort()
        return self.finish((self.share * len(risks) - rank).clamp(0, 1).to(risks))
