"""Which device a user means, and computing there in full precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def resolve_device(name: str) -> str:
    """Return the device a user means: ``"auto"`` is a GPU where there is one.

    Raises:
        ValueError: If the device is not there.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cpu" and not (name.startswith("cuda") and torch.cuda.is_available()):
        raise ValueError(f"the device {name!r} is not available here; choose cpu, or cuda on a machine with a GPU.")
    return name


def full_precision(device_type: str) -> AbstractContextManager[Any]:
    """Return a context without mixed precision; to enter one of PyTorch's costs as much as a kernel."""
    is_mixed = torch.is_autocast_enabled(device_type)
    return torch.autocast(device_type, enabled=False) if is_mixed else nullcontext()
