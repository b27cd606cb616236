"""Distributionally robust optimisation over known groups."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pfdl._internal.validation import check_count
from pfdl.objectives.weightings.base import Weighting


class GroupDRO(Weighting):
    r"""More weight for environments that are doing badly (Sagawa et al., 2020).

    Each environment e has a share :math:`q_e`, all equal at the start. Each batch multiplies it by
    :math:`\exp(\eta R_e)`, with the environment's risk in the batch, and normalises; the loss is
    :math:`\sum_e q_e R_e`. Environments that do not occur in a batch keep their share for later and do not count in it.

    Args:
        num_environments: How many there are; environments are numbered from 0.
        step_size: η.
    """

    needs = ("risks", "environments")
    shares: Tensor

    def __init__(self, num_environments: int, *, step_size: float = 0.01) -> None:
        super().__init__()
        check_count("num_environments", num_environments, 1)
        if not math.isfinite(step_size) or step_size < 0:
            raise ValueError(f"step_size is {step_size}; give a finite number of at least 0.")
        self.step_size = step_size
        self.register_buffer("shares", torch.full((num_environments,), 1 / num_environments))

    def forward(self, risks: Tensor, environments: Tensor) -> Tensor:
        """Update the shares by the risks of a batch, shape (n,), and weigh each sample by its environment's."""
        count = len(self.shares)
        if int(environments.max()) >= count or int(environments.min()) < 0:
            raise ValueError(
                f"environments go from {int(environments.min())} to {int(environments.max())}, but there are {count}; "
                f"number them from 0 to {count - 1}."
            )
        members = torch.nn.functional.one_hot(environments, count).to(risks.dtype)
        sizes = members.sum(0)
        if self.training:
            means = risks @ members / sizes.clamp(min=1)
            # Absent environments have a mean of 0 here and so keep their share, up to the normalisation.
            self.shares = (self.shares.log() + self.step_size * means).softmax(0)
        return self.finish((self.shares / sizes.clamp(min=1))[environments])
