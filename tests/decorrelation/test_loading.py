"""A state is loaded whole or not at all, by the penalty itself and by a module that holds it."""

import copy

import pytest
import torch
from torch import nn

from pfdl import PartialDecorrelation
from tests.decorrelation.small_batches import batch, make
from tests.states import StateTester, each


class TestAsAPart(StateTester):
    """By itself it is tested with all other penalties; a module that holds it loads it by another
    way.
    """

    name = each(["strict", "indexed"])

    def make(self, name, seed=0):
        return nn.ModuleDict({"penalty": make(seed=seed, sharing=name)})

    def use(self, thing, seed=0):
        return thing["penalty"](batch(seed=seed))


def test_a_refused_state_of_another_width_does_not_crash_the_next_call():
    """The moments of the narrow g in the optimiser of the wide one once made the fused Adam run
    past its memory.
    """
    narrow = PartialDecorrelation(64, hidden=8)
    wide = PartialDecorrelation(64, hidden=256)
    features = torch.randn(16, 64)
    narrow(features)
    with pytest.raises(
        ValueError, match=r"decomposition.first_weight in the state has shape \(8, 63\)"
    ):
        wide.load_state_dict(narrow.state_dict())
    assert wide(features).isfinite()


@pytest.mark.parametrize(
    "change",
    [
        lambda optimizer: (
            optimizer["state"][0]["exp_avg"].fill_(1e30),
            optimizer["state"][0]["exp_avg_sq"].zero_(),
        ),
        lambda optimizer: optimizer["param_groups"][0].update(lr=1e10),
    ],
)
def test_a_state_whose_next_step_would_be_finite_and_useless_is_refused(change):
    """Found by the many hostile cases: the penalty of such a g was infinite, without a word."""
    torch.manual_seed(0)
    penalty = PartialDecorrelation(12, hidden=8)
    penalty(torch.randn(16, 12))
    state = copy.deepcopy(dict(penalty.state_dict()))
    change(state["_extra_state"]["optimizer"])
    with pytest.raises(ValueError, match="far too large"):
        penalty.load_state_dict(state)
    assert penalty(torch.randn(16, 12)).isfinite()
