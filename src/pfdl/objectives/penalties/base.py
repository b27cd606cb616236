"""What every penalty has in common."""

from __future__ import annotations

from pfdl.objectives.base import PartModule


class Penalty(PartModule):
    """A scalar term of the training loss.

    A subclass says in ``needs`` which of a batch's tensors its ``forward`` takes, in order: ``"features"``,
    ``"logits"``, ``"labels"``, ``"environments"``. Its ``forward`` returns a differentiable scalar, already
    multiplied by the penalty's own weight.
    """
