"""What every penalty has in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from pfdl._internal.modules import AtomicModule
from pfdl.objectives.base import FromData


class Penalty(FromData, AtomicModule):
    """A scalar term of the training loss.

    A subclass says in ``needs`` which of a batch's tensors its ``forward`` takes, in order: ``"features"``,
    ``"logits"``, ``"labels"``, ``"environments"``. Its ``forward`` returns a differentiable scalar, already
    multiplied by the penalty's own weight.
    """

    needs: ClassVar[tuple[str, ...]] = ("features",)
    reference: ClassVar[str] = ""
    """The paper, for ``pfdl list objectives``."""

    sums_over_processes: ClassVar[bool] = False
    """Whether its ``forward`` joins the batches of all processes itself; otherwise it is called with all samples."""

    def metrics(self) -> Mapping[str, Tensor]:
        """Return what is worth logging of the last call; by default nothing."""
        return {}

    def divisor(self) -> float:
        """Return what the whole loss is divided by, so that a large weight does not enlarge its gradient."""
        return 1.0
