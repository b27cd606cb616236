"""Keep NaN, infinity and values that overflow away from g, and say so: at once, or later where
nothing waits.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim import Adam, AdamW, Optimizer

from pfdl._internal.cuda_graphs import capturable
from pfdl.decorrelation.functional import largest_feature

WIDE_SCALES = 1e4
"""A feature so many times the mean of the others in its row has an error of about 10⁻³ in Ũ by
running sums.
"""

_HELP = "A smaller learning rate or gradient clipping usually prevents this."


def describe_features(features: Tensor, dtype: torch.dtype) -> str:
    """Say which is the first value that is not finite or whose powers overflow in a dtype; there
    must be one.
    """
    limit = largest_feature(dtype)
    is_usable = features.detach().to(dtype).abs() <= limit  # NaN is not below a limit
    row, column = (~is_usable).nonzero()[0].tolist()
    value = features[row, column].item()
    if math.isfinite(value):
        why = (
            f"L_decorr takes the fourth power of features, which overflows in {dtype} above"
            f" {limit:.1e}"
        )
    else:
        why = "all values must be finite"
    return f"features[{row}, {column}] is {value}; {why}. Nothing was updated. {_HELP}"


def describe_update(loss: Tensor, parameters: Iterable[Tensor]) -> str:
    """Say why an update of g, whose loss or gradient is not finite, was not made."""
    if not all(bool(parameter.isfinite().all()) for parameter in parameters):
        return (
            "the weights of g are no longer finite, so that nothing can be learnt from them. Load"
            " an earlier state or build a new penalty, and give g a smaller learning rate."
        )
    return (
        f"L_g is {loss.item():.3g} and its gradient overflows; this update of g was not made."
        " Either the features are too large or g has diverged: normalise the features, or give g a"
        " smaller learning rate."
    )


class LateReport:
    """Two numbers on a GPU that are read without waiting: an update was skipped; the scales of
    features differ.

    They are only ever raised, never lowered, and copied to the host behind the work that sets them.
    Whenever the host reads them, it reads an old "no" or a true "yes".
    """

    def __init__(self) -> None:
        self._on_device: Tensor | None = None
        self._on_host: Tensor | None = None
        self._has_warned = False

    def __reduce__(self) -> tuple[type[LateReport], tuple[()]]:
        return LateReport, ()  # a copy has seen nothing yet

    @staticmethod
    def serves(optimizer: Optimizer) -> bool:
        """Return whether the optimiser can skip an update by a flag on the device, as fused Adam
        can.
        """
        if not isinstance(optimizer, (Adam, AdamW)):
            return False
        return all(group["fused"] for group in optimizer.param_groups)

    def flags(self, device: torch.device) -> Tensor:
        """Return the numbers, shape (2,), for kernels that raise them themselves; call :meth:`send`
        behind these.
        """
        if self._on_device is None or self._on_device.device != device:
            self._on_device = torch.zeros(2, device=device)
            self._on_host = torch.zeros(2, pin_memory=device.type == "cuda")
        return self._on_device

    def send(self) -> None:
        """Copy the numbers to the host when the work before this is done."""
        if self._on_device is not None and self._on_host is not None:
            self._on_host.copy_(self._on_device, non_blocking=True)

    def step(self, optimizer: Optimizer, u: Tensor, total: Tensor) -> None:
        """Take a step of the optimiser, which skips it on the device where features or the update
        are of no use.

        Args:
            optimizer: One that this class serves; its parameters have their gradients.
            u: The features.
            total: L_g plus the squares of its gradient, which are finite if the update is.
        """
        size = u.abs()
        are_usable = (size <= largest_feature(u.dtype)).all()
        skip = ~torch.isfinite(total) | ~are_usable
        largest = size.amax(1) if len(u) else size.new_zeros(1)
        others = (size.sum(1) - largest) / (u.shape[1] - 1)
        wide = (largest > WIDE_SCALES * others).any()
        # How GradScaler tells a fused optimiser, too: the step reads this attribute on the device.
        optimizer.found_inf = skip.float()  # type: ignore[attr-defined]
        with capturable(optimizer):
            optimizer.step()
        del optimizer.found_inf  # type: ignore[attr-defined]
        flags = self.flags(u.device)
        torch.maximum(flags, torch.stack([skip, wide]).to(flags.dtype), out=flags)
        self.send()

    def read(self) -> None:
        """Warn of wide scales, once; raise if the host knows of an update that was skipped, and
        start afresh.
        """
        if self._on_device is None or self._on_host is None:
            return
        skipped, wide = self._on_host.tolist()
        if wide and not skipped and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"a feature is more than {WIDE_SCALES:g} times the mean of the others in its row."
                " On a GPU its own correlated part is then wrong by 0.1 % and more;"
                " standardize=True or kernel='plain' avoids that.",
                stacklevel=3,
            )
        if skipped:
            # No copy of the old numbers is under way any more
            torch.cuda.synchronize(self._on_device.device)
            self._on_device.zero_()
            self._on_host.zero_()
            raise ValueError(
                "the features of an earlier batch had a NaN, an infinity or values whose powers"
                " overflow; all values must be finite. That batch did not update g, and its loss"
                f" was of no use. {_HELP}"
            )
