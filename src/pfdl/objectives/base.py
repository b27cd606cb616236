"""What penalties and weightings have in common, and what they may know of the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor

from pfdl._internal.modules import AtomicModule


@dataclass(frozen=True)
class DataShape:
    """What a part of an objective may know of the data when it is built.

    Args:
        num_features: p, the width of the embedding.
        num_classes: Number of classes; None if not known yet.
        num_contexts: Number of contexts; None if not known yet, as before they are inferred.
    """

    num_features: int
    num_classes: int | None = None
    num_contexts: int | None = None


class Part(Protocol):
    """A penalty or a weighting: a module that says what it reads and what it would log.

    Under ``torch.distributed`` it is called with the samples of all processes, and so needs to know nothing of them.
    One that sums over the processes itself says so by an attribute ``sums_over_processes = True``, and is called with
    its own process's samples.

    :class:`pfdl.objectives.penalties.Penalty` and :class:`pfdl.objectives.weightings.Weighting` are bases with all of
    this; a module with these members needs no base.
    """

    needs: tuple[str, ...]
    """Which tensors of a batch it is called with, in this order: any of ``"risks"`` (weightings only), ``"features"``,
    ``"logits"``, ``"labels"``, ``"environments"``, ``"indices"``."""

    def __call__(self, *tensors: Tensor) -> Tensor:
        """Return the penalty as a scalar, or one weight per sample."""
        ...

    def divisor(self) -> float:
        """Return what the whole loss is divided by; 1 for almost all (weightings are not asked)."""
        ...

    def metrics(self) -> Mapping[str, Tensor]:
        """Return what is worth logging of the last call, as scalars on its device."""
        ...


class PartModule(AtomicModule):
    """What :class:`pfdl.objectives.penalties.Penalty` and :class:`pfdl.objectives.weightings.Weighting` share."""

    __call__: Callable[..., Tensor]
    needs: tuple[str, ...] = ("features",)
    reference: ClassVar[str] = ""
    """The paper, for ``pfdl list objectives``."""

    sums_over_processes: ClassVar[bool] = False
    """Whether its ``forward`` joins the batches of all processes itself; otherwise it is called with all samples."""

    @classmethod
    def from_data(cls, shape: DataShape, **settings: Any) -> Any:
        """Build the part for data of this shape; override it to use the shape."""
        return cls(**settings)

    def divisor(self) -> float:
        """Return what the whole loss is divided by, so that a large weight does not enlarge its gradient."""
        return 1.0

    def metrics(self) -> Mapping[str, Tensor]:
        """Return what is worth logging of the last call; by default nothing."""
        return {}


class Penalty(PartModule):
    """A scalar term of the training loss.

    A subclass says in ``needs`` which of a batch's tensors its ``forward`` takes, in order: ``"features"``,
    ``"logits"``, ``"labels"``, ``"environments"``. Its ``forward`` returns a differentiable scalar, already
    multiplied by the penalty's own weight.
    """
