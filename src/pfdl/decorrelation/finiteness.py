"""Keep NaN, infinity and values that overflow away from g, by waiting for the device or without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Adam, AdamW, Optimizer

from pfdl.decorrelation.kernels import AdamStep


class Finiteness(Protocol):
    """How an update of g is kept from making it useless."""

    raises: bool
    """Whether :meth:`update` may raise."""

    def limit(self, dtype: torch.dtype) -> float:
        """Return beyond which value a feature makes its L_g not a number; infinity if none does."""
        ...

    def update(
        self, optimizer: Optimizer, parameters: Sequence[Parameter], unexplained: Tensor, gradients: Sequence[Tensor]
    ) -> None:
        """Update g unless that would not be finite: then raise, or let the device skip it."""
        ...


class Unchecked:
    """Look at nothing."""

    raises = False

    def limit(self, dtype: torch.dtype) -> float:
        """Allow every value."""
        return math.inf

    def update(
        self, optimizer: Optimizer, parameters: Sequence[Parameter], unexplained: Tensor, gradients: Sequence[Tensor]
    ) -> None:
        """Allow every update."""
        _step(optimizer, parameters, gradients)


class WaitingCheck:
    """Wait for the device, and raise before anything is updated."""

    raises = True

    @staticmethod
    def problem_of(features: Tensor, u: Tensor) -> str | None:
        """Say which of the features cannot be used in the dtype of ``u``, which they were cast to; None if all can."""
        limit = largest_feature(u.dtype)
        usable = u.abs() <= limit  # False for NaN
        if bool(usable.all()):
            return None
        row, column = (~usable).nonzero()[0].tolist()
        value = features[row, column].item()
        why = (
            f"L_decorr takes the fourth power of features, which overflows in {u.dtype} above {limit:.1e}"
            if math.isfinite(value)
            else "all values must be finite"
        )
        return (
            f"features[{row}, {column}] is {value}; {why}. Nothing was updated. A smaller learning rate or gradient "
            "clipping usually prevents this."
        )

    def limit(self, dtype: torch.dtype) -> float:
        """Mark nothing: the features were looked at before."""
        return math.inf

    def update(
        self, optimizer: Optimizer, parameters: Sequence[Parameter], unexplained: Tensor, gradients: Sequence[Tensor]
    ) -> None:
        """Raise if L_g or its gradient is too large to take a step with."""
        if bool(_overflows(unexplained, gradients)):
            raise ValueError(
                f"L_g is {unexplained.mean().item():.3g} and its gradient overflows; nothing was updated. Either the "
                "features are too large or g has diverged: normalise the features, or give g a smaller learning rate."
            )
        _step(optimizer, parameters, gradients)


class FiniteGuard:
    """Have the optimiser skip updates that are not finite, without waiting for the GPU, and report them later.

    A flag on the device is only ever raised, never lowered, and is copied to the host behind the work that sets it.
    Whenever the host reads it, it reads an old "no" or a true "yes".
    """

    raises = False

    def __init__(self) -> None:
        self._on_device: Tensor | None = None
        self._on_host: Tensor | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> FiniteGuard:
        return FiniteGuard()

    def __reduce__(self) -> tuple[type[FiniteGuard], tuple[()]]:
        return FiniteGuard, ()

    @staticmethod
    def serves(optimizer: Optimizer) -> bool:
        """Return whether the optimiser can skip an update by a flag on the device, as fused Adam can."""
        return isinstance(optimizer, (Adam, AdamW)) and all(group["fused"] for group in optimizer.param_groups)

    def limit(self, dtype: torch.dtype) -> float:
        """Mark a feature that is too large: in the sum over the processes, all of them see it."""
        return largest_feature(dtype)

    def update(
        self, optimizer: Optimizer, parameters: Sequence[Parameter], unexplained: Tensor, gradients: Sequence[Tensor]
    ) -> None:
        """Take the step by a kernel that skips it, or give the optimiser the flag that makes it do so."""
        seen, on_host = self._flags(unexplained.device)
        if (step := AdamStep.of(optimizer, parameters)) is not None:
            step.take([gradient.contiguous() for gradient in gradients], unexplained, seen)
        else:
            flag = _overflows(unexplained, gradients).float()
            # How GradScaler tells a fused optimiser, too: the step reads this attribute on the device.
            optimizer.found_inf = flag  # type: ignore[attr-defined]
            _step(optimizer, parameters, gradients)
            torch.maximum(seen, flag, out=seen)
        on_host.copy_(seen, non_blocking=True)

    def _flags(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return whether an update was skipped, on the device and as far as the host knows."""
        if self._on_device is None or self._on_host is None or self._on_device.device != device:
            self._on_device = torch.zeros((), device=device)
            self._on_host = torch.zeros((), pin_memory=device.type == "cuda")
        return self._on_device, self._on_host

    def raise_if_seen(self) -> None:
        """Raise if the host knows of an update that was skipped; the guard is fresh afterwards."""
        if self._on_device is not None and self._on_host is not None and self._on_host.item():
            torch.cuda.synchronize(self._on_device.device)  # no copy of the old flag is under way any more
            self._on_device.zero_()
            self._on_host.zero_()
            raise ValueError(
                "the features of an earlier batch had a NaN, an infinity or values whose powers overflow; all values "
                "must be finite. That batch did not update g, and its loss was of no use. A smaller learning rate or "
                "gradient clipping usually prevents this."
            )


def largest_feature(dtype: torch.dtype) -> float:
    """Return the largest value whose fourth power is finite, because L_decorr is of that order in the features."""
    return float(torch.finfo(dtype).max ** 0.25)


def _step(optimizer: Optimizer, parameters: Sequence[Parameter], gradients: Sequence[Tensor]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.contiguous()  # the fused Adam reads memory in order, whatever the strides
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _overflows(unexplained: Tensor, gradients: Sequence[Tensor]) -> Tensor:
    """Return whether L_g is not finite, or the squares of its gradient, which Adam takes, are not."""
    total = unexplained.sum()
    for gradient in gradients:
        total = total + gradient.square().sum()
    return torch.isfinite(total).logical_not_()
