"""Checks of what a user passes in. Each error is a sentence: what was wrong, with which value, what
would be right.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST = (2 - 2**-23) * 2.0**127
"""That float32 can hold; the commands on tables do not wait for PyTorch."""


def resolve_device(name: str) -> str:
    """Return the device a user means: ``"auto"`` is a GPU where there is one.

    Raises:
        ValueError: If the device is not there.
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cpu" and not (name.startswith("cuda") and torch.cuda.is_available()):
        raise ValueError(
            f"the device {name!r} is not available here; choose cpu, or cuda on a machine with a"
            " GPU."
        )
    return name


def check_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise ValueError(
            f"{name} is {value!r}; choose one of {', '.join(map(repr, sorted(choices)))}."
        )


def check_count(name: str, value: int, minimum: int, maximum: float = math.inf) -> None:
    """Raise unless ``value`` is an integer from ``minimum`` to ``maximum``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}; give a whole number.")
    if value < minimum:
        raise ValueError(f"{name} is {value}; it must be at least {minimum}.")
    if value > maximum:
        raise ValueError(f"{name} is {value}; it must be at most {maximum}.")


def check_number(name: str, value: float, minimum: float = 0.0, maximum: float = math.inf) -> None:
    """Raise unless ``value`` is a number from ``minimum`` to ``maximum`` that float32 can hold."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {value!r}; give a number.")
    if not minimum <= value <= _LARGEST:  # a comparison with NaN is False
        raise ValueError(
            f"{name} is {value}; give a finite number of at least {minimum:g}, below 3.4e38."
        )
    if value > maximum:
        raise ValueError(f"{name} is {value}; give a number from {minimum:g} to {maximum:g}.")


def check_matrix(name: str, value: Tensor, num_features: int | None = None) -> None:
    """Raise unless ``value`` is a floating-point (n, p) tensor, with p = ``num_features`` if that
    is given.
    """
    import torch

    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{name} is a {type(value).__name__}; give a torch.Tensor of shape (batch, features)."
        )
    if value.ndim != 2:
        raise ValueError(
            f"{name} has shape {tuple(value.shape)}; give (batch, features), for instance after"
            " pooling and flatten(1)."
        )
    if not value.is_floating_point():
        raise TypeError(
            f"{name} has dtype {value.dtype}; give floating-point values, for instance"
            f" {name}.float()."
        )
    if num_features is not None and value.shape[1] != num_features:
        raise ValueError(
            f"{name} has {value.shape[1]} columns but num_features is {num_features}; "
            "the two must agree (the width of what enters the last layer)."
        )


def check_features(name: str, value: Tensor, num_features: int | None = None) -> None:
    """Raise unless ``value`` is a batch of embeddings in which a correlation can be measured.

    Finiteness is not looked at here, because on a GPU that look waits for the device: see
    ``describe_non_finite``.
    """
    check_matrix(name, value, num_features)
    if value.shape[1] < 2:
        raise ValueError(f"{name} has {value.shape[1]} feature(s); decorrelation needs at least 2.")
    if value.shape[0] < 2:
        raise ValueError(
            f"{name} has a batch of {value.shape[0]}; a correlation needs at least 2 samples "
            "(drop_last=True in the DataLoader avoids a last batch of one)."
        )


def describe_non_finite(name: str, value: Tensor) -> str | None:
    """Say where ``value`` has its first NaN or infinity; None if it has none. Waits for the
    device.
    """
    finite = value.detach().isfinite()
    if bool(finite.all()):
        return None
    row, column = (~finite).nonzero()[0].tolist()
    return (
        f"{name}[{row}, {column}] is {value[row, column].item()}; all values must be finite. "
        "Nothing was updated. A smaller learning rate or gradient clipping usually prevents this."
    )


class OneThreadAtATime:
    """Refuse a thread while another one is inside; a copy is free.

    To wait instead would hide that the order of the calls, and so the result, is left to chance.

    Args:
        what: What threads share, for the sentence.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type[OneThreadAtATime], tuple[str]]:
        return OneThreadAtATime, (self._what,)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Hold the object for this thread in the block; RuntimeError if another thread does."""
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                f"another thread is in the middle of a call of this {self._what}; let threads that"
                " share it take turns (with a threading.Lock around each call), or give each its"
                " own."
            )
        try:
            yield
        finally:
            self._lock.release()
