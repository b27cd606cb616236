"""Start a backbone from a local file of weights. Reading one runs no code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pfdl.vision.features import attach


def load_weights(model: nn.Module, path: Path, name: str) -> None:
    """Load a file of weights into a model.

    The last layer stays new where the file has one for another number of classes, or none. Everything else must be
    there, in the model's shapes.

    Args:
        model: The model.
        path: ``.safetensors``, or a file that ``torch.save`` wrote of a ``state_dict()``.
        name: What the model is called, for the sentences.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it holds something else than the weights of this model.
    """
    found, own = _read(path), model.state_dict()
    with attach(model) as tap:
        last = tap.layer_name + "."
    wanted: dict[str, Tensor] = {}
    for key, value in own.items():
        wanted[key] = found.get(key, value if key.startswith(last) else torch.empty(0))
        if key.startswith(last) and wanted[key].shape != value.shape:
            wanted[key] = value  # a new last layer
        here = wanted[key]
        if here.shape != value.shape or here.is_floating_point() != value.is_floating_point():
            there = f"is {tuple(here.shape)}, {here.dtype}" if key in found else "is missing"
            raise ValueError(
                f"{path} does not hold the weights of this {name}: {key!r} {there} there and {tuple(value.shape)}, "
                f"{value.dtype} here."
            )
        if here.is_floating_point() and not bool(torch.isfinite(here).all()):
            raise ValueError(f"{key!r} in {path} has values that are not finite; take other weights.")
    model.load_state_dict(wanted)


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file of weights {path}.")
    from safetensors.torch import load_file  # only here: a backbone of one's own needs no packages for images

    try:
        content: Any = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)  # tensors and plain values only
        )
    except OSError:
        raise
    except Exception as error:  # of unpickling, of safetensors: anything may be in a damaged file
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{path} is not a file of weights ({reason}); give a .safetensors file, or what torch.save wrote of a "
            "state_dict()."
        ) from None
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ValueError(f"{path} is not a file of weights: it must map names to tensors.")
    return {str(key): value for key, value in content.items()}
