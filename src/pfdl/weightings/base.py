"""What every weighting has in common."""

from __future__ import annotations

from typing import ClassVar

from torch import nn


class Weighting(nn.Module):
    """One weight per sample of the batch.

    A subclass says in ``needs`` which of a batch's tensors its ``forward`` takes, in order: ``"risks"`` (each
    sample's loss), ``"features"``, ``"logits"``, ``"labels"``, ``"environments"``; all of them come detached. Its
    ``forward`` returns weights of shape (n,) that are not negative and whose mean is 1.
    """

    needs: ClassVar[tuple[str, ...]] = ("features",)
