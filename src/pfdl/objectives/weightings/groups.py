"""What weightings over groups, one class in one context each, have in common."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl.objectives.base import Weighting

MOST_GROUPS = 10**7
"""Groups a table may have: class and context numbers are its indices, so they should be small and without gaps."""


class GroupWeighting(Weighting):
    """A weighting that keeps one number per group in ``table``, shape (classes, contexts).

    The table grows with the classes and contexts that are seen, so that neither must be known in advance; it is part
    of ``state_dict()``. A context of −1 means that it is unknown: such samples are not part of any group.
    """

    needs: tuple[str, ...] = ("labels", "environments")
    sized_by_data: ClassVar[tuple[str, ...]] = ("table",)
    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(0, 0))

    def check_loaded(self) -> None:
        """Refuse counts that are none."""
        if self.table.numel() > MOST_GROUPS or bool((self.table < 0).any()):
            raise ValueError("table in the state has negative numbers or too many; it is one number per group.")


def grown(table: Tensor, labels: Tensor, contexts: Tensor) -> Tensor:
    """Return the table with room for all groups of these labels and contexts; new entries are 0.

    Raises:
        ValueError: If the numbers are too large for a table.
    """
    if not len(labels):
        return table
    sizes = [max(int(new.max()) + 1, old) for new, old in zip((labels, contexts), table.shape, strict=True)]
    if sizes[0] * sizes[1] > MOST_GROUPS:
        raise ValueError(
            f"labels go up to {sizes[0] - 1} and contexts up to {sizes[1] - 1}: more than {MOST_GROUPS} groups; "
            "number both from 0 without gaps."
        )
    rows, columns = table.shape
    return F.pad(table.to(labels.device), (0, sizes[1] - columns, 0, sizes[0] - rows))


def check_groups(labels: Tensor, environments: Tensor) -> tuple[Tensor, Tensor]:
    """Return labels and environments as whole numbers of shape (n,), or say what is wrong with them."""
    for name, value in {"labels": labels, "environments": environments}.items():
        if not isinstance(value, Tensor) or value.dim() != 1 or value.is_complex():
            what = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"type {type(value).__name__}"
            raise ValueError(f"{name} have {what}; give one whole number per sample, shape (n,).")
    if len(labels) != len(environments):
        raise ValueError(f"there are {len(labels)} labels and {len(environments)} environments; give as many of each.")
    whole = labels.long(), environments.long()
    if not all(torch.equal(a, b.to(a.dtype)) for a, b in zip((labels, environments), whole, strict=True)):
        raise ValueError("labels and environments must be whole numbers.")
    if bool((whole[0] < 0).any()):
        raise ValueError(f"labels go down to {int(labels.min())}; number the classes from 0.")
    return whole


def group_counts(labels: Tensor, contexts: Tensor, like: Tensor) -> Tensor:
    """Count the samples of each group, in the shape of the table ``like``."""
    counts = torch.zeros_like(like)
    counts.index_put_((labels, contexts), torch.ones_like(labels, dtype=like.dtype), accumulate=True)
    return counts
