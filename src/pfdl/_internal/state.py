"""The state of a training run as one safetensors file: no pickle, so that reading one can never run
code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from pfdl._internal.files import write_atomically

FORMAT = "pfdl-state-1"
MAX_TREE = 1 << 24
"""Characters. What stands around the tensors is some thousand in a real state; parsed it takes far
more memory.
"""


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write nested dictionaries, lists and tuples of tensors, numbers, strings, booleans and None,
    whole or not at all.

    The tensors are those of the safetensors file; everything around them is JSON in its header.

    Args:
        path: The file.
        state: What to keep, such as the ``state_dict()`` of modules and optimisers.

    Raises:
        TypeError: If something of another kind is among it.
    """
    tensors: dict[str, Tensor] = {}
    tree = _encode(dict(state), tensors)
    save_tensors(path, tensors, {"format": FORMAT, "tree": json.dumps(tree)})


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], header: dict[str, str] | None = None
) -> None:
    """Write tensors, such as the weights of a model, as safetensors, whole or not at all."""
    # save() stores memory as it lies and refuses tensors that share it, so they are copied
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(path, save(copies, metadata=header))


def load_state(path: Path) -> dict[str, Any]:
    """Read what :func:`save_state` wrote; tensors are on the CPU.

    Args:
        path: The file.

    Returns:
        The state.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged or something else.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise ValueError(f"its format is {header.get('format')!r}, not {FORMAT!r}")
            if len(header["tree"]) > MAX_TREE:
                raise ValueError(f"its header has {len(header['tree'])} characters")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is not a dictionary
        state = _decode(header["tree"], tensors)
        if not isinstance(state, dict):
            raise ValueError(f"it holds a {type(state).__name__}")
    except (
        SafetensorError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise ValueError(f"{path} is not a whole training state ({error}).") from error
    return state


def _encode(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}  # JSON has no such numbers
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        name = f"{len(tensors):06d}"
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, Mapping):
        # As pairs, because optimisers count their parameters with integers
        pairs = [(_encode(key, tensors), _encode(item, tensors)) for key, item in value.items()]
        return {"dict": pairs}
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_encode(item, tensors) for item in value]}
    raise TypeError(
        f"a {type(value).__name__} cannot be part of a training state; only tensors and plain"
        " values can."
    )


def _decode(tree: str, tensors: dict[str, Tensor]) -> Any:
    """Undo :func:`_encode`; each tensor is taken out of ``tensors``, so that no two entries share
    their memory.
    """

    def items(content: Any) -> list[Any]:
        if not isinstance(content, list):
            raise ValueError("its header has an entry of the wrong kind")
        return content

    kinds: dict[str, Callable[[Any], Any]] = {
        "tensor": tensors.pop,
        "float": float,
        "dict": dict,
        "list": items,
        "tuple": lambda content: tuple(items(content)),
    }

    def revive(entry: dict[str, Any]) -> Any:
        ((kind, content),) = entry.items()
        return kinds[kind](content)

    return json.loads(tree, object_hook=revive)
