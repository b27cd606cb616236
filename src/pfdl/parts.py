"""What all parts of an objective have in common, and what they may know of the data."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from pfdl._internal.loading import AtomicModule, copy_like, is_plain_tensor


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


class Part(AtomicModule):
    """What penalties (PFDL's too) and weightings share.

    Under ``torch.distributed`` a part is called with the samples of all processes, and so needs to
    know nothing of them, unless it ``sums_over_processes`` itself.
    """

    __call__: Callable[..., Tensor]
    needs: tuple[str, ...] = ("features",)
    """Which tensors of a batch ``forward`` is called with, in this order: any of ``"features"``,
    ``"logits"``, ``"labels"``, ``"environments"``, and for weightings ``"risks"`` and
    ``"indices"``."""

    reference: ClassVar[str] = ""
    """The paper, for ``pfdl list objectives``."""

    sums_over_processes: ClassVar[bool] = False
    """Whether its ``forward`` joins the batches of all processes itself; then it is called with
    those of its own.
    """

    sized_by_data: ClassVar[tuple[str, ...]] = ()
    """Buffers whose size follows from the data, and so is taken from a state that is loaded."""

    @classmethod
    def from_data(cls, shape: DataShape, **settings: Any) -> Any:
        """Build the part for data of this shape; override it to use the shape."""
        return cls(**settings)

    def divisor(self) -> float:
        """Return what the objective divides its whole loss by in the next call, risk and all
        penalties, so that a large weight does not enlarge the gradient.
        """
        return 1.0

    def metrics(self) -> Mapping[str, Tensor]:
        """Return what is worth logging of the last call, as scalars on its device; by default
        nothing.
        """
        return {}

    def prepare(self, labels: Tensor, environments: Tensor) -> None:
        """See the labels and environments of all training samples, shape (n,), before the first
        batch.

        Most parts have no use for them. Calling it is optional, and once more after a checkpoint
        was loaded.
        """

    def recording_key(self) -> Hashable | None:
        """Return what a recording of the next call would fix, such as a weight; None, the default,
        if a call cannot be recorded.

        A recorded call runs on the GPU alone: whatever Python does in it happens once. See
        ``note_replay``.
        """
        return None

    def note_replay(self) -> None:
        """Count a call that was replayed from a recording, for which ``forward`` did not run."""

    def check_loaded(self) -> None:
        """Raise ValueError if the buffers, just loaded from a state, do not fit together; the state
        is then refused.
        """

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # Also a module that holds this one loads it: everything is looked at before the first value
        # is taken.
        for name, own in [*self.named_parameters(), *self.named_buffers(recurse=False)]:
            saved = state_dict.get(prefix + name, own)  # load_state_dict reports what is missing
            if name in self.sized_by_data and is_plain_tensor(saved) and saved.dim() == own.dim():
                own = own.new_empty(saved.shape)
                setattr(self, name, own)
            copy_like(own, saved, f"{prefix}{name} in the state")
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self.check_loaded()
