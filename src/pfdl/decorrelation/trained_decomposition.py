"""The network g with its own optimiser: moved, saved and loaded together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pfdl._internal.modules import AtomicModule
from pfdl._internal.optimizer_state import load_optimizer_state
from pfdl._internal.validation import is_plain_tensor
from pfdl.decorrelation.decomposition import FeatureDecomposition

OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]


class TrainedDecomposition(AtomicModule):
    """A module that owns g and trains it beside a model that knows nothing of it.

    To everybody else g's parameters are frozen. The optimiser and the count of fits are part of ``state_dict()``, and
    a state is loaded whole or not at all.

    Args:
        decomposition: g.
        optimizer: Makes g's optimiser from its parameters.

    Attributes:
        decomposition: g.
        optimizer: Its optimiser.
        completed_fits: How many batches g was fitted to.
        is_shared: Whether all processes of a distributed run have the same g.
    """

    def __init__(self, decomposition: FeatureDecomposition, optimizer: OptimizerFactory) -> None:
        super().__init__()
        self.decomposition = decomposition.requires_grad_(False)
        self.optimizer = optimizer(self.decomposition.parameters())
        self.completed_fits = 0
        self.is_shared = False
        self._parameters_before: list[nn.Parameter] = []
        self.register_load_state_dict_post_hook(_let_optimizer_follow)  # type: ignore[no-untyped-call]

    def get_extra_state(self) -> dict[str, Any]:
        """Return the optimiser of g and the count of fits, for ``state_dict``."""
        return {"optimizer": self.optimizer.state_dict(), "completed_fits": self.completed_fits}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Take up what ``get_extra_state`` gave, all of it or nothing.

        Raises:
            ValueError: If it is not the state of this optimiser over parameters of these shapes.
        """
        fits = state.get("completed_fits") if isinstance(state, Mapping) else None
        if isinstance(fits, bool) or not isinstance(fits, int) or fits < 0 or "optimizer" not in state:
            raise ValueError(
                f"the state of g's optimiser is {str(state)[:80]}; it must have 'optimizer' and 'completed_fits', "
                "a whole number of at least 0."
            )
        load_optimizer_state(self.optimizer, state["optimizer"])
        self.completed_fits = fits
        self.is_shared = False

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        # Also a module that holds this one loads it: everything is looked at before the first value is taken.
        for name, own in self.decomposition.named_parameters():
            _check_weights(f"{prefix}decomposition.{name}", state_dict, own)
        self._parameters_before = list(self.decomposition.parameters())
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> TrainedDecomposition:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        # The moments follow the parameters to their new device and dtype: loading casts them.
        self.optimizer.load_state_dict(self.optimizer.state_dict())
        return self


def _let_optimizer_follow(module: TrainedDecomposition, _: object) -> None:
    """Give the optimiser of g the parameters that ``load_state_dict(..., assign=True)`` has put in place of the old."""
    followers = dict(zip(module._parameters_before, module.decomposition.parameters(), strict=True))
    module._parameters_before = []
    if any(old is not new for old, new in followers.items()):
        for group in module.optimizer.param_groups:
            group["params"] = [followers[old] for old in group["params"]]
        for old, new in followers.items():
            if old in module.optimizer.state:
                module.optimizer.state[new] = module.optimizer.state.pop(old)


def _check_weights(name: str, state: Mapping[str, Any], own: Tensor) -> None:
    """Raise unless a state has no such weights of g, or some of the right shape that are finite."""
    if name not in state:
        return  # load_state_dict reports what is missing
    saved = state[name]
    if not is_plain_tensor(saved) or not saved.is_floating_point() or saved.shape != own.shape:
        what = f"{saved.dtype}, {tuple(saved.shape)}" if isinstance(saved, Tensor) else type(saved).__name__
        raise ValueError(f"{name} in the state is {what}; g has floating-point numbers of shape {tuple(own.shape)}.")
    if not bool(torch.isfinite(saved).all()):
        raise ValueError(f"{name} in the state has a NaN or an infinity; all values must be finite.")
