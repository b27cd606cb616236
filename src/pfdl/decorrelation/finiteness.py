"""NaN and infinity kept away from g without waiting for the GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class FiniteGuard:
    """Remembers on the device whether a loss was not finite, and tells the host when it happens to know.

    The flag is only ever raised, never lowered, and is copied to the host behind the work that sets it. Whenever the
    host reads it, it reads an old "no" or a true "yes".
    """

    def __init__(self) -> None:
        self._on_device: Tensor | None = None
        self._on_host: Tensor | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> FiniteGuard:
        return FiniteGuard()

    def watch(self, loss: Tensor) -> Tensor:
        """Return 1.0 on the device if ``loss`` is not finite, else 0.0, and note it."""
        bad = torch.isfinite(loss).logical_not_().float()
        if self._on_device is None or self._on_host is None or self._on_device.device != loss.device:
            self._on_device = torch.zeros_like(bad)
            self._on_host = torch.zeros(bad.shape, pin_memory=loss.is_cuda)
        torch.maximum(self._on_device, bad, out=self._on_device)
        self._on_host.copy_(self._on_device, non_blocking=True)
        return bad

    def raise_if_seen(self) -> None:
        """Raise if the host knows of a loss that was not finite; the guard is fresh afterwards."""
        if self._on_device is not None and self._on_host is not None and self._on_host.item():
            torch.cuda.synchronize(self._on_device.device)  # no copy of the old flag is under way any more
            self._on_device.zero_()
            self._on_host.zero_()
            raise ValueError(
                "the features of an earlier batch had a NaN, an infinity or values whose squares overflow; all values "
                "must be finite. That batch did not update g, and its loss was not a number. A smaller learning rate "
                "or gradient clipping usually prevents this."
            )
