"""What the penalties that compare environments share: their weight, their checks, their means."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl._internal.cuda_graphs import may_look
from pfdl._internal.validation import check_count, check_number
from pfdl.objectives.base import Penalty


class Compared(NamedTuple):
    """A number for each environment, and whether it counts: 1.0, or 0.0 where the batch lacks it.

    With ``prepare`` the environments of the training set, otherwise those of the batch.
    """

    values: Tensor
    counts: Tensor

    def mean(self) -> Tensor:
        """Return the mean over the environments that count."""
        return (self.values * self.counts).sum() / self.counts.sum()

    def variance(self) -> Tensor:
        """Return the population variance over the environments that count."""
        return Compared((self.values - self.mean()).square(), self.counts).mean()


class EnvironmentPenalty(Penalty):
    """A penalty on what differs between training environments, with a weight that is switched on
    late.

    Such penalties are weighted so strongly that nothing would be learnt if they acted from the
    start. As in the published code of IRM, the weight is 1 for the first ``anneal`` training calls
    and ``weight`` from then on; the count of calls is part of ``state_dict()``. A weight below 1 is
    therefore switched *down* when the annealing ends: give ``anneal=0`` with it.

    Args:
        weight: What the penalty is multiplied by after the annealing.
        anneal: Number of training calls before the weight takes effect.

    Raises:
        ValueError, TypeError: If an argument cannot be used.
    """

    needs: tuple[str, ...] = ("logits", "labels", "environments")
    compare: Callable[..., Tensor]
    """The penalty itself, without its weight; a method of each subclass that takes what it
    ``needs``.
    """

    def __init__(self, weight: float = 1.0, *, anneal: int = 0) -> None:
        super().__init__()
        check_number("weight", weight)
        check_count("anneal", anneal, 0)
        self.weight = weight
        self.anneal = anneal
        self.completed_calls = 0
        self._number: int | None = None  # of environments, once all training samples were seen

    def prepare(self, labels: Tensor, environments: Tensor) -> None:
        """Count the environments of all training samples, shape (n,)."""
        check_environments(environments, len(labels))
        self._number = int(environments.max()) + 1

    def recording_key(self) -> Hashable | None:
        """Return the weight of the next call, once the number of environments is known."""
        return None if self._number is None else (self.current_weight(), self._number)

    def note_replay(self) -> None:
        """Count a training call."""
        self.completed_calls += 1

    def membership(self, environments: Tensor) -> Tensor | None:
        """Return whether each sample, (n,), is in each environment of the training set, (n, e), as
        0.0 and 1.0; None before ``prepare``, or if there are environments beside these.
        """
        check_environments(environments, len(environments))
        if self._number is None or (may_look() and int(environments.max()) >= self._number):
            return None
        numbers = torch.arange(self._number, device=environments.device)
        return (environments[:, None] == numbers).float()

    def average(self, values: Tensor, environments: Tensor) -> Compared:
        """Return the mean of ``values``, shape (n,), in each environment."""
        check_environments(environments, len(values))
        members = self.membership(environments)
        if members is None:
            means = environment_means(values, environments)
            return Compared(means, torch.ones_like(means))
        members = members.to(values.dtype)
        samples = members.sum(0)
        return Compared(values @ members / samples.clamp(min=1), (samples > 0).to(values.dtype))

    def current_weight(self) -> float:
        """Return the weight that the next call will use."""
        return self.weight if self.completed_calls >= self.anneal else 1.0

    def divisor(self) -> float:
        """Return what the objective divides its whole loss by in the next call: this penalty's
        weight if that is above 1, as in the published code of IRM.
        """
        return max(1.0, self.current_weight())

    def forward(self, *batch: Tensor) -> Tensor:
        """Compare the environments of one batch.

        Args:
            *batch: What the penalty ``needs``, one row per sample; environments are integers of
              shape (n,).

        Returns:
            weight × the penalty, a scalar.
        """
        penalty = self.current_weight() * self.compare(*batch)
        if self.training:
            self.completed_calls += 1
        return penalty

    def get_extra_state(self) -> dict[str, Any]:
        """Return the count of training calls, for ``state_dict``."""
        return {"completed_calls": self.completed_calls}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take up what ``get_extra_state`` gave.

        Raises:
            ValueError: If it is not a count.
        """
        calls = state.get("completed_calls") if isinstance(state, Mapping) else None
        if isinstance(calls, bool) or not isinstance(calls, int) or calls < 0:
            raise ValueError(
                f"completed_calls in the state is {calls!r}; it must be a whole number of at"
                " least 0."
            )
        self.completed_calls = calls


def check_environments(environments: Tensor, samples: int) -> None:
    """Raise unless ``environments`` has one whole number from 0 for each of so many samples."""
    if not isinstance(environments, Tensor):
        raise TypeError(f"environments are a {type(environments).__name__}; give a torch.Tensor.")
    if environments.shape != (samples,):
        raise ValueError(
            f"environments have shape {tuple(environments.shape)} for {samples} samples; "
            "give one integer per sample."
        )
    if environments.is_floating_point() or environments.is_complex():
        raise TypeError(
            f"environments have dtype {environments.dtype}; give whole numbers, for instance"
            " environments.long()."
        )
    if not samples:
        raise ValueError("the batch has no samples; give at least one.")
    if may_look() and bool((environments < 0).any()):
        raise ValueError(
            "environments go below 0, and −1 stands for unknown; number them from 0, and leave out"
            " the rest."
        )


def environment_means(values: Tensor, environments: Tensor) -> Tensor:
    """Return the mean of ``values`` in each environment that occurs.

    Args:
        values: One number per sample, shape (n,).
        environments: Integers of shape (n,).

    Returns:
        One mean per environment, in ascending order of their numbers.

    Raises:
        TypeError, ValueError: If there is not one environment for each value.

    Example:
        >>> import torch
        >>> environment_means(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([7, 7, 2]))
        tensor([5., 2.])
    """
    check_environments(environments, len(values))
    _, index, counts = torch.unique(environments, return_inverse=True, return_counts=True)
    # A product with the membership matrix, not a scatter: on a GPU its sums do not depend on the
    # order of threads.
    sums = values @ F.one_hot(index).to(values.dtype)
    means: Tensor = sums / counts
    return means
