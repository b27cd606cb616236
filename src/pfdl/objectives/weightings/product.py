"""Several weightings at once."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable
from itertools import chain

import torch
from torch import Tensor, nn

from pfdl.objectives.base import Weighting


class Product(Weighting):
    """Multiply several weightings, each of which learns by itself.

    Args:
        factors: The weightings.
    """

    def __init__(self, factors: Iterable[Weighting]) -> None:
        super().__init__()
        self.factors = nn.ModuleList(factors)
        needs = chain.from_iterable(factor.needs for factor in self._factors())
        self.needs = tuple(dict.fromkeys(needs))

    def recording_key(self) -> Hashable | None:
        """Return what a recording of all factors would fix; None if one cannot be recorded."""
        keys = tuple(factor.recording_key() for factor in self._factors())
        return None if None in keys else keys

    def note_replay(self) -> None:
        """Let every factor count the call."""
        for factor in self._factors():
            factor.note_replay()

    def forward(self, *tensors: Tensor) -> Tensor:
        """Return one weight per sample, from the tensors that the factors need."""
        batch = dict(zip(self.needs, tensors, strict=True))
        before = copy.deepcopy(self.state_dict())
        weights = []
        learnt: dict[str, Tensor] = {}
        try:
            for factor in self._factors():
                weights.append(factor(*(batch[name] for name in factor.needs)))
                learnt.update(factor.learnt)
            self.learnt = learnt
            return self.finish(torch.stack(weights).prod(0))
        except Exception:
            # One factor may have learnt from a batch that another refused
            self.load_state_dict(before)
            raise

    def prepare(self, labels: Tensor, environments: Tensor) -> None:
        """Prepare every factor."""
        for factor in self._factors():
            factor.prepare(labels, environments)

    def fit(self, features: Tensor) -> None:
        """Fit every factor."""
        for factor in self._factors():
            factor.fit(features)

    def _factors(self) -> list[Weighting]:
        return [factor for factor in self.factors if isinstance(factor, Weighting)]
