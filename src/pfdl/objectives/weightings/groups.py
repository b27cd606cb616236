"""What weightings over groups share: a table with one number for each class in each context."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl._internal.cuda_graphs import may_look
from pfdl.objectives.base import Weighting

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

    def recording_key(self) -> Hashable | None:
        """Return where the buffers lie once all groups are known; before, tables may grow."""
        if not self._prepared:
            return None
        return tuple(buffer.data_ptr() for buffer in self.buffers())

    def check_loaded(self) -> None:
        """Refuse counts that are none."""
        if self.table.numel() > MOST_GROUPS or bool((self.table < 0).any()):
            raise ValueError(
                "table in the state has negative numbers or too many; it is one number per group."
            )


def grown(table: Tensor, labels: Tensor, contexts: Tensor) -> Tensor:
    """Return the table with room for all groups of these labels and contexts; new entries are 0.

    Raises:
        ValueError: If the numbers are too large for a table.
    """
    if not len(labels) or not may_look():
        return table
    old_rows, old_columns = table.shape
    rows = max(int(labels.max()) + 1, old_rows)
    columns = max(int(contexts.max()) + 1, old_columns)
    if rows * columns > MOST_GROUPS:
        raise ValueError(
            f"labels go up to {rows - 1} and contexts up to {columns - 1}: more than"
            f" {MOST_GROUPS} groups; number both from 0 without gaps."
        )
    return F.pad(table.to(labels.device), (0, columns - old_columns, 0, rows - old_rows))


def check_groups(
    labels: Tensor, environments: Tensor, *, all_known: bool = False
) -> tuple[Tensor, Tensor]:
    """Return labels and environments as whole numbers of shape (n,), or say what is wrong with
    them.
    """
    classes = _whole_numbers("labels", labels)
    contexts = _whole_numbers("environments", environments)
    if len(classes) != len(contexts):
        raise ValueError(
            f"there are {len(classes)} labels and {len(contexts)} environments; give as many of"
            " each."
        )
    if not may_look():
        return classes, contexts
    if bool((classes < 0).any()):
        raise ValueError(f"labels go down to {int(classes.min())}; number the classes from 0.")
    if all_known and bool((contexts < 0).any()):
        raise ValueError("GroupDRO needs the context of every sample, and some are unknown (−1).")
    return classes, contexts


def _whole_numbers(name: str, values: Tensor) -> Tensor:
    if not isinstance(values, Tensor):
        raise ValueError(
            f"{name} have type {type(values).__name__}; give a torch.Tensor with one whole number"
            " per sample, shape (n,)."
        )
    if values.dim() != 1 or values.is_complex():
        raise ValueError(
            f"{name} have shape {tuple(values.shape)} and dtype {values.dtype}; give one whole"
            " number per sample, shape (n,)."
        )
    whole = values.long()
    if may_look() and not torch.equal(values, whole.to(values.dtype)):
        raise ValueError(f"{name} must be whole numbers; they have dtype {values.dtype}.")
    return whole


def group_counts(labels: Tensor, contexts: Tensor, like: Tensor) -> Tensor:
    """Count the samples of each group, in the shape of the table ``like``."""
    return group_sums(torch.ones_like(labels, dtype=like.dtype), labels, contexts, like)


def group_sums(values: Tensor, labels: Tensor, contexts: Tensor, like: Tensor) -> Tensor:
    """Sum one value per sample over each group, in shape and dtype of the table ``like``."""
    sums = torch.zeros_like(like)
    return sums.index_put_((labels, contexts), values.to(like), accumulate=True)
