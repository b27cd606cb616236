"""A state is loaded whole or not at all, by the penalty itself and by a module that holds it."""

import copy

import pytest
import torch
from torch import nn

from pfdl import PartialDecorrelation
from tests.objectives.penalties.small_batches import batch, make
from tests.states import equal


class Holder(nn.Module):
    def __init__(self, penalty):
        super().__init__()
        self.penalty = penalty


def load_directly(penalty, state):
    penalty.load_state_dict(state)


def load_as_a_part(penalty, state):
    Holder(penalty).load_state_dict({f"penalty.{key}": value for key, value in state.items()})


def moment(value):
    return lambda state: state["_extra_state"]["optimizer"]["state"][0].update(exp_avg=value)


HOSTILE = {
    "another width": lambda state: state.update(make(hidden=64).state_dict()),
    "fewer features": lambda state: state.update(make(p=4).state_dict()),
    "moments of another width": lambda state: state.update(_extra_state=trained(hidden=64).get_extra_state()),
    "a moment of one number": moment(torch.zeros(1)),
    "a moment that is not a number": moment(torch.full((5, 5), torch.nan)),
    "weights that are not numbers": lambda state: state["decomposition.first_weight"].fill_(torch.nan),
    "weights as whole numbers": lambda state: state.update({"decomposition.first_bias": torch.zeros(5).to(torch.int8)}),
    "weights that are a word": lambda state: state.update({"decomposition.first_bias": "five"}),
    "no optimiser": lambda state: state.update(_extra_state={"completed_fits": 3}),
    "no count": lambda state: state["_extra_state"].pop("completed_fits"),
    "a negative count": lambda state: state["_extra_state"].update(completed_fits=-1),
    "half a count": lambda state: state["_extra_state"].update(completed_fits=1.5),
    "no state at all": lambda state: state.update(_extra_state=None),
}


def trained(**options):
    penalty = make(**options)
    penalty(batch())
    return penalty


@pytest.mark.parametrize("load", [load_directly, load_as_a_part])
@pytest.mark.parametrize("what", HOSTILE)
def test_what_does_not_fit_leaves_weights_and_moments_as_they_were(what, load):
    penalty = trained()
    state = copy.deepcopy(trained(seed=1).state_dict())
    HOSTILE[what](state)
    before = copy.deepcopy(penalty.state_dict())
    with pytest.raises((ValueError, RuntimeError)):
        load(penalty, state)
    assert equal(before, penalty.state_dict())
    assert penalty(batch(seed=2)).isfinite()


def test_a_state_with_missing_weights_is_taken_back():
    penalty = trained()
    before = copy.deepcopy(penalty.state_dict())
    state = trained(seed=1).state_dict()
    del state["decomposition.first_bias"]
    with pytest.raises(RuntimeError, match="Missing key"):
        penalty.load_state_dict(state)
    assert equal(before, penalty.state_dict())


def test_a_refused_state_of_another_width_does_not_crash_the_next_call():
    """The moments of the narrow g in the optimiser of the wide one once made the fused Adam run past its memory."""
    narrow, wide = PartialDecorrelation(64, hidden=8), PartialDecorrelation(64, hidden=256)
    features = torch.randn(16, 64)
    narrow(features)
    with pytest.raises(ValueError, match=r"decomposition.first_weight in the state has shape \(8, 63\)"):
        wide.load_state_dict(narrow.state_dict())
    assert wide(features).isfinite()


def test_the_optimiser_of_g_cannot_be_switched_by_a_state():
    penalty, state = trained(), copy.deepcopy(trained(seed=1).state_dict())
    state["_extra_state"]["optimizer"]["param_groups"][0].update(fused=False, differentiable=True)
    penalty.load_state_dict(state)
    (group,) = penalty.optimizer.param_groups
    assert (group["fused"], group["differentiable"]) == (True, False)


@pytest.mark.parametrize(
    "change",
    [
        lambda optimizer: (optimizer["state"][0]["exp_avg"].fill_(1e30), optimizer["state"][0]["exp_avg_sq"].zero_()),
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
