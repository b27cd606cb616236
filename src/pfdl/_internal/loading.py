"""Load the states of modules and optimisers whole or not at all; wrong moments can crash the fused
kernels of PyTorch.

One check for all that is loaded, :func:`copy_like`: names, shapes, kinds of numbers, and that every
number is finite. It serves weights, the moments of any optimiser, and both where parameters are
sharded, because states are kept whole.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Mapping
from itertools import chain
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

NEVER_TAKEN = frozenset(
    {"params", "param_names", "fused", "foreach", "capturable", "differentiable"}
)
"""What a group keeps from its own optimiser: which parameters it has, and which implementation
runs.
"""

LARGEST_MOVE = 1e3
"""How far gradients below 1 may move a parameter in a step: further than in any training that
converges.
"""

Group = dict[str, Any]
States = Mapping[int, Mapping[str, Any]]
"""What an optimiser keeps for each parameter, by the number of the parameter."""


def is_plain_tensor(value: object) -> TypeGuard[Tensor]:
    """Return whether a value is a tensor that has its numbers in memory, as a state must have
    them.
    """
    return (
        isinstance(value, Tensor)
        and value.layout is torch.strided
        and not (value.is_meta or value.is_quantized)
    )


class AtomicModule(nn.Module):
    """A module whose ``load_state_dict`` leaves it as it was if it raises.

    PyTorch alone loads what fits before it reports what does not.
    """

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load a state, all of it or nothing; arguments and result are those of
        ``nn.Module.load_state_dict``.

        Raises:
            RuntimeError, ValueError: If the state does not fit this module; nothing has changed
                then.
        """
        before = copy.deepcopy(self.state_dict())
        try:
            return super().load_state_dict(state_dict, strict=strict, assign=assign)
        except BaseException as error:
            super().load_state_dict(before)
            if isinstance(error, (TypeError, LookupError, AttributeError)):  # nonsense
                raise ValueError(
                    f"the state does not fit {type(self).__name__} ({error}); give what"
                    " state_dict() returned."
                ) from error
            raise


def load_optimizer_state(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Load what ``optimizer.state_dict()`` returned, all of it or nothing; see
    :func:`checked_optimizer_state`.
    """
    optimizer.load_state_dict(checked_optimizer_state(optimizer, state))


def checked_optimizer_state(optimizer: Optimizer, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a state that the optimiser can load and step from.

    The state is compared with the one that this optimiser makes itself in a trial step on copies of
    its parameters. Of a parameter group only the settings that the optimiser has are taken, and
    none that choose an implementation (``fused``, ``foreach``, ``capturable``, ``differentiable``).
    A second trial step, from the state, must succeed.

    Args:
        optimizer: Any optimiser whose ``step()`` needs no closure; its parameters may be sharded.
            It is not changed.
        state: Its state, as ``state_dict()`` lays it out, with whole tensors; from a source that
            need not be trusted.

    Returns:
        The state in memory of its own, its tensors whole and laid out as the optimiser lays them
        out.

    Raises:
        ValueError: If the state does not fit.
    """
    saved = state.get("state") if isinstance(state, Mapping) else None
    saved_groups = state.get("param_groups") if isinstance(state, Mapping) else None
    if not isinstance(saved, Mapping) or not isinstance(saved_groups, (list, tuple)):
        raise ValueError(
            "the optimiser state is not a mapping with 'state' and 'param_groups'; give a"
            " state_dict()."
        )
    own = optimizer.state_dict()
    if len(saved_groups) != len(own["param_groups"]):
        raise ValueError(
            f"the optimiser state has {len(saved_groups)} groups of parameters; the optimiser has "
            f"{len(own['param_groups'])}."
        )
    groups = [_with_settings(*pair) for pair in zip(own["param_groups"], saved_groups, strict=True)]
    known = list(chain.from_iterable(group["params"] for group in groups))
    if unknown := saved.keys() - set(known):
        raise ValueError(
            f"the optimiser state has values for the parameter {unknown.pop()!r}, which is in no"
            " group."
        )
    made = _made_by_a_step(optimizer, groups, own["state"]) if saved else {}
    checked: dict[int, Any] = {}
    for number in known:
        if number in saved:
            what = f"parameter {number} of the optimiser state"
            checked[number] = copy_like(made.get(number, {}), saved[number], what)
    _check_usable(optimizer, groups, checked)
    return {"state": checked, "param_groups": groups}


def copy_like(own: Any, saved: Any, name: str) -> Any:
    """Return a copy of a saved value if it is of the same kind as one's own: the check of every
    state.

    Args:
        own: A tensor, a number, a truth value, a string, None, or mappings, lists and tuples of
            these.
        saved: The value of a state, from a source that need not be trusted.
        name: What it is, for messages.

    Returns:
        A tensor has the shape, dtype, device and memory layout of the own one; the fused kernels
        look at no strides.

    Raises:
        ValueError: If names, lengths, shapes or kinds of numbers differ, or a number is not finite.
    """
    if isinstance(own, Tensor):
        return _tensor_like(own, torch.as_tensor(saved) if _is_number(saved) else saved, name)
    if isinstance(own, Mapping):
        return _mapping_like(own, saved, name)
    if isinstance(own, (list, tuple)):
        if isinstance(saved, (list, tuple)) and len(saved) == len(own):
            return type(own)(copy_like(a, b, name) for a, b in zip(own, saved, strict=True))
    elif _is_number(own):
        if _is_number(saved):
            return saved
    elif type(saved) is type(own):
        return saved
    raise ValueError(f"{name} is {_shown(saved)}; it must be like {_shown(own)}.")


def _mapping_like(own: Mapping[Any, Any], saved: Any, name: str) -> dict[Any, Any]:
    if not isinstance(saved, Mapping) or set(saved) != set(own):
        names = sorted(map(str, saved)) if isinstance(saved, Mapping) else _shown(saved)
        raise ValueError(f"{name} has {names}; it must have {sorted(map(str, own))}.")
    return {key: copy_like(value, saved[key], f"{key!r} of {name}") for key, value in own.items()}


def _tensor_like(own: Tensor, saved: Any, name: str) -> Tensor:
    if not is_plain_tensor(saved):
        raise ValueError(f"{name} is {_shown(saved)}; it must be a tensor with numbers.")
    if saved.shape != own.shape:
        raise ValueError(f"{name} has shape {tuple(saved.shape)}; it must be {tuple(own.shape)}.")
    kinds = [(each.is_floating_point(), each.is_complex()) for each in (saved, own)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"{name} has dtype {saved.dtype}; it must be like {own.dtype}.")
    result = _zeros_like(own).copy_(saved.detach())
    if not bool(torch.isfinite(result).all()):
        raise ValueError(f"{name} has a NaN or an infinity; all values must be finite.")
    return result


def _with_settings(own: Group, saved: Any) -> Group:
    """Return a copy of a parameter group with the settings of a saved one, which must have the same
    parameters.
    """
    if not isinstance(saved, Mapping):
        raise ValueError(
            f"a group of the optimiser state is {_shown(saved)}; it must be a mapping."
        )
    numbers = copy_like(
        own["params"], saved.get("params"), "the list of parameters of the optimiser state"
    )
    if numbers != own["params"]:
        raise ValueError(
            f"a group of the optimiser state has the parameters {numbers}, not {own['params']}."
        )
    taken = dict(own)
    for name in own.keys() & saved.keys() - NEVER_TAKEN:
        taken[name] = copy_like(
            own[name], saved[name], f"the setting {name!r} of the optimiser state"
        )
        if _is_number(taken[name]) and taken[name] < 0 <= own[name]:
            raise ValueError(
                f"the setting {name!r} of the optimiser state is {taken[name]}; it must not be"
                " negative."
            )
    return taken


def _made_by_a_step(optimizer: Optimizer, groups: list[Group], state: States) -> States:
    """Return what the optimiser keeps for each parameter after a step; some make a part of it when
    they are built.
    """
    start = {number: _cleared(moments) for number, moments in state.items()}
    try:
        _, after = _trial_step(optimizer, groups, start)
        return after
    except Exception as error:
        raise ValueError(
            f"the state of {type(optimizer).__name__} cannot be checked, because a trial step"
            f" failed ({error}); only optimisers whose step() needs no closure can be loaded."
        ) from error


def _check_usable(optimizer: Optimizer, groups: list[Group], state: States) -> None:
    """Raise unless the optimiser can step from this state, whose tensors fit."""
    try:
        moves, _ = _trial_step(optimizer, groups, state)
    except Exception as error:
        if not state and isinstance(error, TypeError):
            return  # step() needs a closure, and there is nothing to step from yet
        raise ValueError(f"a trial step with the optimiser state failed ({error}).") from error
    if not all(bool((move.abs() <= LARGEST_MOVE).all()) for move in moves):
        raise ValueError(
            "a trial step with the optimiser state gives values that are not finite, or far too"
            " large."
        )


def _cleared(moments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an optimiser keeps for a parameter, with zeros in its tensors."""
    return {
        name: _zeros_like(value) if isinstance(value, Tensor) else value
        for name, value in moments.items()
    }


def _trial_step(
    optimizer: Optimizer, groups: list[Group], start: States
) -> tuple[list[Tensor], States]:
    """Take a step from a copy of a state, with parameters and gradients between −1 and 1.

    Returns:
        How far each parameter moved, and the state after the step.
    """
    trial = copy.copy(optimizer)
    # What a subclass keeps besides torch's own; not a step that a scheduler has wrapped, nor what a
    # scaler has planted.
    others = vars(optimizer).keys() - vars(trial).keys() - {"step", "found_inf", "grad_scale"}
    vars(trial).update({name: getattr(optimizer, name) for name in others})
    trial.state = defaultdict(dict)
    trial.param_groups = []
    copies: list[Tensor] = []
    for group, own in zip(groups, optimizer.param_groups, strict=True):
        parameters = [_ramp_like(parameter).requires_grad_() for parameter in own["params"]]
        trial.param_groups.append({**group, "params": parameters})
        copies += parameters
    before = [scratch.detach().clone() for scratch in copies]
    for number, scratch in enumerate(copies):
        scratch.grad = before[number].clone()
        if number in start:
            trial.state[scratch] = copy.deepcopy(dict(start[number]))
    type(optimizer).step(trial)
    moves = [scratch.detach() - old for scratch, old in zip(copies, before, strict=True)]
    return moves, {
        number: trial.state[scratch]
        for number, scratch in enumerate(copies)
        if scratch in trial.state
    }


def _zeros_like(tensor: Tensor) -> Tensor:
    """Return zeros laid out as a tensor is; the whole of it where each process holds a part."""
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    ).zero_()


def _ramp_like(tensor: Tensor) -> Tensor:
    """Return the numbers from −1 to 1, laid out as a tensor is."""
    ramp = torch.linspace(-1, 1, tensor.numel(), device=tensor.device)
    return _zeros_like(tensor).copy_(ramp.view(tensor.shape))


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(value, float) and math.isfinite(value)


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, (Tensor, Mapping)) else repr(value)[:80]
