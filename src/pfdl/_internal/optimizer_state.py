"""Load the state of an optimiser only if it fits: wrong moments can crash the fused kernels of PyTorch."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from pfdl._internal.validation import is_plain_tensor

NEVER_TAKEN = frozenset({"params", "param_names", "fused", "foreach", "capturable", "differentiable"})
"""What a group keeps from its own optimiser: which parameters it has, and which implementation runs."""

Group = dict[str, Any]
Values = dict[str, Any]


def load_optimizer_state(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Load what ``optimizer.state_dict()`` returned, all of it or nothing.

    The state is compared with the one that this optimiser makes itself in a trial step on copies of its parameters:
    every moment must have the same name, shape and kind of number, and be finite. Of a parameter group only the
    settings that the optimiser has are taken, and none that choose an implementation (``fused``, ``foreach``,
    ``capturable``, ``differentiable``). A second trial step, from the state, must succeed. Afterwards the optimiser
    shares no memory with ``state``.

    Args:
        optimizer: Any optimiser whose ``step()`` needs no closure.
        state: Its state, as ``state_dict()`` lays it out; from a source that need not be trusted.

    Raises:
        ValueError: If the state does not fit; the optimiser is unchanged then.
    """
    saved_groups, saved_state = _parts(state)
    groups = _groups(optimizer, saved_groups)
    keys = [_keys(saved, group) for saved, group in zip(saved_groups, groups, strict=True)]
    flat_keys = [key for some in keys for key in some]
    if len(set(flat_keys)) < len(flat_keys):
        raise ValueError("the optimiser state lists a parameter twice; each must occur once.")
    if unknown := [key for key in saved_state if key not in set(flat_keys)]:
        raise ValueError(f"the optimiser state has values for the parameter {unknown[0]!r}, which is in no group.")
    made = _trial(optimizer, groups) if saved_state else {}
    parameters = [parameter for group in groups for parameter in group["params"]]
    fitting = {
        parameter: _fitting(made.get(parameter, {}), saved_state[key], f"parameter {key}")
        for key, parameter in zip(flat_keys, parameters, strict=True)
        if key in saved_state
    }
    _check_usable(optimizer, groups, fitting)
    optimizer.load_state_dict(
        {
            "state": {key: fitting[one] for key, one in zip(flat_keys, parameters, strict=True) if one in fitting},
            "param_groups": [{**group, "params": some} for group, some in zip(groups, keys, strict=True)],
        }
    )


def _parts(state: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], Mapping[Any, Any]]:
    """Return the groups and the values by parameter."""
    if not isinstance(state, Mapping) or not {"state", "param_groups"} <= set(state):
        raise ValueError("the optimiser state is not a mapping with 'state' and 'param_groups'; give a state_dict().")
    groups, values = state["param_groups"], state["state"]
    if not isinstance(groups, Sequence) or not all(isinstance(group, Mapping) for group in groups):
        raise ValueError("'param_groups' of the optimiser state is not a list of mappings.")
    if not isinstance(values, Mapping):
        raise ValueError(f"'state' of the optimiser state is a {type(values).__name__}; it must be a mapping.")
    return list(groups), values


def _keys(saved: Mapping[str, Any], group: Group) -> list[Any]:
    """Return the names under which the state has the parameters of a group."""
    keys = saved.get("params")
    if not isinstance(keys, (list, tuple)) or not all(isinstance(key, (int, str)) for key in keys):
        raise ValueError("a group of the optimiser state has no list of parameters.")
    if len(keys) != len(group["params"]):
        raise ValueError(
            f"a group of the optimiser state has {len(keys)} parameters; the optimiser has {len(group['params'])}."
        )
    return list(keys)


def _groups(optimizer: Optimizer, saved_groups: list[Mapping[str, Any]]) -> list[Group]:
    """Return copies of the optimiser's groups with the settings of the saved ones."""
    own = optimizer.param_groups
    if len(saved_groups) != len(own):
        raise ValueError(f"the optimiser state has {len(saved_groups)} parameter groups; the optimiser has {len(own)}.")
    return [
        {
            name: _setting(name, value, saved[name]) if name in saved and name not in NEVER_TAKEN else value
            for name, value in group.items()
        }
        for group, saved in zip(own, saved_groups, strict=True)
    ]


def _setting(name: str, own: Any, saved: Any) -> Any:
    """Return a setting of a saved group if it is of the same kind as the optimiser's own."""
    if isinstance(own, Tensor):
        return _tensor(own, torch.as_tensor(saved) if _is_number(saved) else saved, f"the setting {name!r}")
    if isinstance(own, (list, tuple)):
        if isinstance(saved, (list, tuple)) and len(saved) == len(own):
            return type(own)(_setting(name, a, b) for a, b in zip(own, saved, strict=True))
    elif isinstance(own, bool) or own is None or isinstance(own, str):
        if type(saved) is type(own):
            return saved
    elif _is_number(own) and _is_number(saved) and (saved >= 0 or own < 0):
        return saved
    raise ValueError(f"the setting {name!r} of the optimiser state is {_shown(saved)}; it must be like {own}.")


def _trial(optimizer: Optimizer, groups: list[Group]) -> dict[Tensor, Values]:
    """Return the state that the optimiser has for each parameter after one step, made on copies."""
    reason: Exception | None = None
    start: Mapping[Tensor, Values]
    for start in ({}, optimizer.state):  # some optimisers make their state when they are built, and step from there
        try:
            return _step_on_copies(optimizer, groups, start)[1]
        except Exception as error:
            reason = error
    raise ValueError(
        f"the state of {type(optimizer).__name__} cannot be checked, because a trial step failed ({reason}); "
        "only optimisers whose step() needs no closure can be loaded."
    ) from reason


def _check_usable(optimizer: Optimizer, groups: list[Group], state: Mapping[Tensor, Values]) -> None:
    """Raise unless the optimiser can step from this state, whose tensors fit."""
    try:
        stepped = _step_on_copies(optimizer, groups, state)[0]
    except Exception as error:
        if not state and isinstance(error, TypeError):
            return  # step() needs a closure, and there is nothing to step from yet
        raise ValueError(f"a trial step with the optimiser state failed ({error}).") from error
    # Parameters of that size are finite, and whatever is computed from them is not: no training made such a state.
    if not all(bool((value.abs() <= max(1e3, torch.finfo(value.dtype).max ** 0.25)).all()) for value in stepped):
        raise ValueError("a trial step with the optimiser state gives values that are not finite, or far too large.")


def _step_on_copies(
    optimizer: Optimizer, groups: list[Group], start: Mapping[Tensor, Values]
) -> tuple[list[Tensor], dict[Tensor, Values]]:
    """Take one step on copies of the parameters, all zero, from a copy of a state; return both after it."""
    trial = copy.copy(optimizer)
    # What a subclass keeps besides torch's own; not a step that a scheduler has wrapped, nor what a scaler has planted.
    others = vars(optimizer).keys() - vars(trial).keys() - {"step", "found_inf", "grad_scale"}
    vars(trial).update({name: getattr(optimizer, name) for name in others})
    parameters = [parameter for group in groups for parameter in group["params"]]
    copies = {parameter: torch.zeros_like(parameter, requires_grad=True) for parameter in parameters}
    trial.state = defaultdict(dict)
    trial.param_groups = [{**group, "params": [copies[one] for one in group["params"]]} for group in groups]
    for parameter, scratch in copies.items():
        scratch.grad = torch.zeros_like(scratch)
        if parameter in start:
            trial.state[scratch] = copy.deepcopy(start[parameter])
    type(optimizer).step(trial)
    state = {parameter: trial.state[scratch] for parameter, scratch in copies.items() if scratch in trial.state}
    return list(copies.values()), state


def _fitting(made: Values, saved: Any, of: str) -> Values:
    """Return the saved values of one parameter in tensors laid out as the optimiser lays them out."""
    if not isinstance(saved, Mapping) or set(saved) != set(made):
        names = sorted(map(str, saved)) if isinstance(saved, Mapping) else _shown(saved)
        raise ValueError(f"the optimiser state has {names} for {of}; the optimiser keeps {sorted(made)}.")
    return {name: _value(value, saved[name], f"{name!r} of {of}") for name, value in made.items()}


def _value(made: Any, saved: Any, of: str) -> Any:
    if isinstance(made, Tensor):
        return _tensor(made, saved, of)
    if (made is None and saved is None) or (_is_number(made) and _is_number(saved)):
        return saved
    raise ValueError(f"{of} in the optimiser state is {_shown(saved)}; it must be like {made}.")


def _tensor(made: Tensor, saved: Any, of: str) -> Tensor:
    if not is_plain_tensor(saved):
        raise ValueError(f"{of} in the optimiser state is {_shown(saved)}; it must be a tensor with numbers.")
    if saved.shape != made.shape:
        raise ValueError(f"{of} in the optimiser state has shape {tuple(saved.shape)}; it must be {tuple(made.shape)}.")
    if saved.is_floating_point() != made.is_floating_point() or saved.is_complex() != made.is_complex():
        raise ValueError(f"{of} in the optimiser state has dtype {saved.dtype}; it must be like {made.dtype}.")
    # Not the saved tensor: its memory may be laid out in another way, which the fused kernels do not look at.
    fitting = torch.empty_like(made, requires_grad=False)
    fitting.copy_(saved.detach())
    if not bool(torch.isfinite(fitting).all()):
        raise ValueError(f"{of} in the optimiser state has a NaN or an infinity; all values must be finite.")
    return fitting


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, (Tensor, Mapping, list, tuple)) else repr(value)[:80]
