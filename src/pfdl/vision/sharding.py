"""FSDP: a backbone of whose weights each process holds a part, and its state as one process would have it.

The objective stays whole in every process: it is small beside the backbone, and g has an optimiser of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from pfdl._internal.loading import checked_optimizer_state
from pfdl._internal.processes import rank


def shard(backbone: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Let each process keep a part of the weights, of their gradients and of the optimiser's state, in place."""
    for block in backbone.children():
        if isinstance(block, nn.Sequential):  # such blocks are called as a whole, so they can be gathered one by one
            fully_shard(block, mesh=mesh)
    fully_shard(backbone, mesh=mesh)
    return backbone


def whole(state: Any) -> Any:
    """Return a state in which the first process has whole tensors on the CPU where it held parts; all must call."""
    if isinstance(state, DTensor):
        full = state.full_tensor()
        return full.cpu() if rank() == 0 else None
    if isinstance(state, Mapping):
        return {name: whole(value) for name, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(whole(value) for value in state)
    return state


def load_module(module: nn.Module, state: Mapping[str, Any]) -> None:
    """Load a whole state into a module, of which each process takes its part."""
    own = module.state_dict()
    module.load_state_dict({name: _part_of(value, own.get(name)) for name, value in state.items()})


def load_optimizer(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Load a whole state into an optimiser, of which each process takes its part; all must call.

    Raises:
        ValueError: If the state does not fit; the optimiser is unchanged then.
    """
    checked = checked_optimizer_state(optimizer, state)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, moments in checked["state"].items():
        own = parameters[number]
        for name, value in moments.items():
            if isinstance(value, Tensor) and value.shape == own.shape:  # a count of steps is not divided
                moments[name] = _part_of(value, own)
    optimizer.load_state_dict(checked)


def _part_of(value: Any, own: object) -> Any:
    if isinstance(own, DTensor) and isinstance(value, Tensor):
        return distribute_tensor(value.to(own.device), own.device_mesh, own.placements)
    return value
