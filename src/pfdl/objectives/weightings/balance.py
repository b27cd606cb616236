"""Every context has the same share of every class."""

from __future__ import annotations

import torch
from torch import Tensor

from pfdl._internal.cuda_graphs import may_look
from pfdl._internal.validation import check_number
from pfdl.objectives.weightings.groups import GroupWeighting, check_groups, group_counts, grown

SMOOTHING = 0.25
"""With it no sample counts more than five times as much as one of a group of average size."""


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
        table = self.table
        if may_look():
            table = grown(table, labels[known], environments[known])
        if self.training and not self._prepared:
            table = table + group_counts(labels[known], environments[known], table)
            self.table = table
        weights = torch.ones(len(labels), device=labels.device)
        if table.numel():
            of_group = balancing_table(table, self.smoothing)
            if self.equal_classes:
                of_class = table.sum(1, keepdim=True).clamp(min=1)
                of_group = of_group / of_class * table.sum() / len(table)
            of_sample = of_group[labels.clamp(max=len(table) - 1), environments.clamp(min=0)]
            weights = torch.where(known, of_sample, weights)
        return self.finish(weights)


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
    tiny = torch.finfo(counts.dtype).tiny
    of_class = counts.sum(1, keepdim=True).clamp(min=1)
    mean_of_class = of_class / counts.shape[1]
    # Both are shares of 1, so that no smoothing overflows
    own = 1 / (1 + smoothing)
    added = smoothing / (1 + smoothing)
    table = 1 / (own * counts + added * mean_of_class).clamp(min=tiny)
    table = torch.where(counts > 0, table, 1.0)  # of an empty group nothing is known
    total = (table * counts).sum(1, keepdim=True).clamp(min=tiny)
    return table * of_class / total
