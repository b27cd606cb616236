"""What every penalty has in common."""

from __future__ import annotations

from typing import ClassVar

from torch import nn


class Penalty(nn.Module):
    """A scalar term of the training loss.

    A subclass says in ``needs`` which of a batch's tensors its ``forward`` takes, in order: ``"features"``,
    ``"logits"``, ``"labels"``, ``"environments"``. Its ``forward`` returns a differentiable scalar, already
    multiplied by the penalty's own weight.
    """

    needs: ClassVar[tuple[str, ...]] = ("features",)
