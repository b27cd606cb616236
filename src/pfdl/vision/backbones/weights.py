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
    found = _read(path)
    wanted = model.state_dict()
    with attach(model) as tap:
        last = tap.layer_name + "."
    for key, value in wanted.items():
        here = found.get(key)
        if key.startswith(last) and (here is None or here.shape != value.shape):
            found[key] = value  # a new last layer
        elif here is None:
            raise ValueError(f"{path} does not hold the weights of a {name}: it has no {key!r}.")
        elif here.shape != value.shape:
            raise ValueError(
                f"{path} does not hold the weights of this {name}: {key!r} is {tuple(here.shape)} there and "
                f"{tuple(value.shape)} here."
            )
        elif here.is_floating_point() != value.is_floating_point():
            raise ValueError(f"{key!r} in {path} is of the kind {here.dtype}; the {name} needs {value.dtype}.")
        elif here.is_floating_point() and not bool(torch.isfinite(here).all()):
            raise ValueError(f"{key!r} in {path} has values that are not finite; take other weights.")
    model.load_state_dict({key: found[key] for key in wanted})


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
