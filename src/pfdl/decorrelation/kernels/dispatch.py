"""Which implementation of the leave-one-out network runs where. One place decides."""

from __future__ import annotations

import importlib.util
import os
from functools import cache

import torch

from pfdl.decorrelation.kernels.one_hidden import FUSED_ACTIVATIONS, Backend
from pfdl.decorrelation.kernels.torch_backend import TorchBackend

KERNELS = ("auto", "fused", "plain")
"""``"fused"``: the closed form, Triton on a GPU and PyTorch on a CPU. ``"plain"``: chunked PyTorch with autograd."""


def choose_backend(
    kernel: str, device: torch.device, dtype: torch.dtype, hidden: tuple[int, ...], activation: str | None
) -> Backend | None:
    """Return who computes the closed form, or None where the plain path has to.

    Args:
        kernel: One of ``KERNELS``. ``"auto"`` takes the closed form wherever there is one.
        device: Where the features are.
        dtype: Of g's parameters.
        hidden: Widths of g's hidden layers.
        activation: The name of g's activation if it is one that the closed form knows.

    Raises:
        ValueError: If ``"fused"`` was asked for and cannot be had; the message says why.
    """
    if kernel == "plain":
        return None
    reason = _why_not(device, dtype, hidden, activation)
    if reason is None:
        return _triton() if device.type == "cuda" or _interpreting() else TorchBackend
    if kernel == "fused":
        raise ValueError(f"kernel is 'fused', but {reason}; use kernel='auto'.")
    return None


def has_triton_for(device: torch.device) -> bool:
    """Return whether the Triton kernels run on a device."""
    return (device.type == "cuda" and _has_triton()) or _interpreting()


def _why_not(device: torch.device, dtype: torch.dtype, hidden: tuple[int, ...], activation: str | None) -> str | None:
    if len(hidden) != 1:
        return f"g has {len(hidden)} hidden layers and the fused form is for one"
    if activation is None:
        return f"the fused form knows only the activations {' and '.join(FUSED_ACTIVATIONS)}"
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return "it cannot be traced by torch.compile or torch.func"
    if device.type == "cuda" or _interpreting():
        if dtype != torch.float32:
            return f"the Triton kernels compute in float32 and g's parameters are {dtype}"
        if not _has_triton():
            return "Triton is not installed"
    elif device.type != "cpu":
        return f"there is no fused form for the device {device.type!r}"
    return None


@cache
def _has_triton() -> bool:
    # Remembered, as below: such a search takes longer than the launch of a kernel.
    return importlib.util.find_spec("triton") is not None


@cache
def _interpreting() -> bool:
    """Return whether Triton's interpreter stands in for a GPU, as in the tests of the kernels."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _triton() -> Backend:
    # Imported late: Triton comes with PyTorch for CUDA only.
    from pfdl.decorrelation.kernels.triton_backend import TritonBackend

    return TritonBackend
