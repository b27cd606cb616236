"""Which device a user means."""

from __future__ import annotations

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
