"""What weightings over groups, one class in one context each, have in common."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl.objectives.weightings.base import Weighting


class GroupWeighting(Weighting):
    """A weighting that keeps one number per group in ``table``, shape (classes, contexts).

    The table grows with the classes and contexts that are seen, so that neither must be known beforehand; it is part
    of ``state_dict()``. A context of −1 means that it is unknown: such samples are not part of any group.
    """

    needs: tuple[str, ...] = ("labels", "environments")
    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(0, 0))

    def grow(self, labels: Tensor, contexts: Tensor) -> None:
        """Make room for all groups of these labels and contexts; new entries are 0."""
        if not len(labels):
            return
        sizes = [max(int(new.max()) + 1, old) for new, old in zip((labels, contexts), self.table.shape, strict=True)]
        rows, columns = self.table.shape
        self.table = F.pad(self.table.to(labels.device), (0, sizes[1] - columns, 0, sizes[0] - rows))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # The table grows with what is seen, so a fresh module must take its size from the checkpoint.
        saved = state_dict.get(prefix + "table")
        if isinstance(saved, Tensor) and saved.dim() == 2:
            self.table = self.table.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def group_counts(labels: Tensor, contexts: Tensor, like: Tensor) -> Tensor:
    """Count the samples of each group, in the shape of the table ``like``."""
    counts = torch.zeros_like(like)
    counts.index_put_((labels, contexts), torch.ones_like(labels, dtype=like.dtype), accumulate=True)
    return counts
