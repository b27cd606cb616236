"""Weights that make the environment tell nothing about the class."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl.objectives.weightings.base import Weighting

SMOOTHING = 0.25
"""With it no sample counts more than five times as much as one of a cell of average size."""


class Balance(Weighting):
    """Weights under which every environment has the same share of every class.

    They undo the correlation of class and environment in the training data, and leave each class its frequency. The
    counts behind them are those of :meth:`prepare`, or else of the samples seen so far in training; they are part of
    ``state_dict()``.
    Environments may be known, or found by :func:`pfdl.infer_contexts`; samples whose environment is −1 weigh 1.

    Args:
        smoothing: See :func:`balancing_table`.
        equal_classes: Whether the classes, too, shall have equal shares.
    """

    needs = ("labels", "environments")
    counts: Tensor

    def __init__(self, *, smoothing: float = SMOOTHING, equal_classes: bool = False) -> None:
        super().__init__()
        if not math.isfinite(smoothing) or smoothing < 0:
            raise ValueError(f"smoothing is {smoothing}; give a finite number of at least 0.")
        self.smoothing = smoothing
        self.equal_classes = equal_classes
        self.register_buffer("counts", torch.zeros(0, 0))
        self._prepared = False

    def prepare(self, labels: Tensor, environments: Tensor) -> None:
        """Count all training samples, shape (n,), at once: from then on the weights of a sample stay the same."""
        self.counts = self.counts.new_zeros(0, 0)
        self._count(labels, environments)
        self._prepared = True

    def forward(self, labels: Tensor, environments: Tensor) -> Tensor:
        """Weigh a batch of labels and environments, shape (n,); count it, if nobody has counted all samples."""
        if self.training and not self._prepared:
            self._count(labels, environments)
        if not self.counts.numel():
            return self.finish(torch.ones(len(labels), device=labels.device))
        table = balancing_table(self.counts, self.smoothing)
        if self.equal_classes:
            table = table / self.counts.sum(1, keepdim=True).clamp(min=1) * self.counts.sum() / len(self.counts)
        of_cell = table[labels.long(), environments.clamp(min=0)]
        return self.finish(torch.where(environments >= 0, of_cell, 1.0))

    def _count(self, labels: Tensor, environments: Tensor) -> None:
        known = environments >= 0
        labels, environments = labels[known].long(), environments[known].long()
        if len(labels) == 0:
            return
        grown = [
            max(int(new.max()) + 1, old) for new, old in zip((labels, environments), self.counts.shape, strict=True)
        ]
        rows, columns = self.counts.shape
        self.counts = F.pad(self.counts.to(labels.device), (0, grown[1] - columns, 0, grown[0] - rows))
        self.counts.index_put_((labels, environments), torch.ones(len(labels), device=labels.device), accumulate=True)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # The counts grow with what is seen, so a fresh module must take their size from the checkpoint.
        if prefix + "counts" in state_dict:
            self.counts = torch.empty_like(state_dict[prefix + "counts"], device=self.counts.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def balancing_table(counts: Tensor, smoothing: float = SMOOTHING) -> Tensor:
    """The weight of a sample of each class and environment.

    Args:
        counts: Samples of each class in each environment, shape (classes, environments).
        smoothing: What is added to each count, as a part of the mean count of its class; so a few stray samples do not
            outweigh their class.

    Returns:
        The same shape. The mean over the samples of a class is 1.

    Example:
        >>> balancing_table(torch.tensor([[6.0, 2.0], [1.0, 1.0]]), smoothing=0.0)
        tensor([[0.6667, 2.0000],
                [1.0000, 1.0000]])
    """
    of_class = counts.sum(1, keepdim=True).clamp(min=1)
    table = 1 / (counts + smoothing * of_class / counts.shape[1]).clamp(min=torch.finfo(counts.dtype).tiny)
    table = torch.where(counts > 0, table, 1.0)  # of an empty cell nothing is known
    return table * of_class / (table * counts).sum(1, keepdim=True).clamp(min=torch.finfo(counts.dtype).tiny)
