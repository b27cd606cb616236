import copy
from functools import partial

import pytest
import torch
from torch import nn, optim

from pfdl._internal.loading import load_optimizer_state
from pfdl.vision.launching import shard
from tests.states import StateTester, each, equal

MAKERS = {
    "Adam": partial(optim.Adam, lr=1e-2),
    "fused Adam": partial(optim.Adam, lr=1e-2, fused=True),
    "fused AMSGrad": partial(optim.AdamW, lr=1e-2, amsgrad=True, fused=True),
    "SGD": partial(optim.SGD, lr=0.1),
    "fused SGD": partial(optim.SGD, lr=0.1, momentum=0.9, fused=True),
    "momentum": partial(optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
    "RMSprop": partial(optim.RMSprop, lr=1e-2, centered=True, momentum=0.5),
    "fused Adagrad": partial(optim.Adagrad, lr=1e-2, fused=True),
    "ASGD": partial(optim.ASGD, lr=1e-2),
    "Rprop": partial(optim.Rprop, lr=1e-2),
    "Adafactor": partial(optim.Adafactor, lr=1e-2),
    "RAdam": partial(optim.RAdam, lr=1e-2),
}


def trained(make, steps=3, width=3, mesh=None):
    """A model and its optimiser after so many steps, its parameters sharded if there is a mesh."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))
    if mesh is not None:
        shard(model, mesh)
    optimizer = make(model.parameters())
    for _ in range(steps):
        step(model, optimizer)
    return model, optimizer


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.linspace(-1, 1, 20).view(5, 4)).square().sum().backward()
    optimizer.step()


class OptimizerTester(StateTester):
    """A thing is a model and its optimiser."""

    def use(self, thing, seed=0):
        with torch.no_grad():
            for parameter in thing[0].parameters():
                parameter.fill_(0.1 * (seed + 1))  # the weights are no part of the state
        step(*thing)
        return torch.cat([parameter.detach().flatten() for parameter in thing[0].parameters()])

    def state(self, thing):
        return thing[1].state_dict()

    def load(self, thing, state):
        load_optimizer_state(thing[1], state)


class TestStates(OptimizerTester):
    name = each(MAKERS)

    def make(self, name, seed=0):
        return trained(MAKERS[name], steps=0)


def test_settings_are_taken_but_not_the_implementation():
    _, optimizer = trained(partial(optim.Adam, lr=0.5, betas=(0.5, 0.6), foreach=True))
    _, other = trained(MAKERS["fused Adam"], steps=0)
    state = optimizer.state_dict()
    state["param_groups"][0] |= {
        "fused": False,
        "differentiable": True,
        "capturable": True,
        "strange": 3,
    }
    load_optimizer_state(other, state)
    (group,) = other.param_groups
    assert (group["lr"], group["betas"]) == (0.5, (0.5, 0.6))
    assert (group["fused"], group["foreach"], group["differentiable"]) == (True, None, False)
    assert "strange" not in group


def test_a_wrapped_step_of_a_scheduler_is_not_run():
    model, optimizer = trained(MAKERS["Adam"])
    optim.lr_scheduler.StepLR(optimizer, 1)
    weights = copy.deepcopy(model.state_dict())
    state = optimizer.state_dict()
    load_optimizer_state(optimizer, state)
    assert equal(weights, model.state_dict())
    assert optimizer.state_dict()["state"][0]["step"] == 3


def test_moments_take_the_layout_of_the_parameters():
    model = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
    optimizer = optim.Adam(model.parameters(), fused=True)
    model(torch.randn(2, 3, 5, 5)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    moments = state["state"][0]
    state["state"][0] = {name: value.contiguous() for name, value in moments.items()}
    load_optimizer_state(optimizer, state)
    assert optimizer.state[model.weight]["exp_avg"].stride() == model.weight.stride()
    assert torch.equal(optimizer.state[model.weight]["exp_avg"], moments["exp_avg"])


def poisoned(change):
    _, optimizer = trained(MAKERS["fused Adam"])
    state = copy.deepcopy(optimizer.state_dict())
    change(state)
    return state


def put(name, value):
    def change(state):
        state["state"][0][name] = value

    return change


def group(**values):
    return lambda state: state["param_groups"][0].update(values)


HOSTILE = {
    "a moment of one number": (
        put("exp_avg", torch.zeros(1)),
        r"'exp_avg' of parameter 0 .* shape \(1,\).*\(3, 4\)",
    ),
    "sparse": (put("exp_avg", torch.zeros(3, 4).to_sparse()), "must be a tensor with numbers"),
    "NaN": (put("exp_avg", torch.full((3, 4), torch.nan)), "NaN or an infinity"),
    "another moment": (put("momentum_buffer", torch.zeros(3, 4)), "it must have \\["),
    "an unknown parameter": (
        lambda state: state["state"].update({9: {}}),
        "parameter 9, which is in no group",
    ),
    "a state that is a list": (lambda state: state.update(state=[1]), "give a state_dict"),
    "no groups": (
        lambda state: state.update(param_groups=[]),
        "has 0 groups of parameters; the optimiser has 1",
    ),
    "groups of another kind": (
        lambda state: state.update(param_groups=[3]),
        "a group of the optimiser state is 3",
    ),
    "too few parameters": (
        group(params=[0]),
        r"the list of parameters .* is \[0\]; it must be like \[0, 1, 2, 3\]",
    ),
    "a parameter twice": (group(params=[0, 0, 1, 2]), r"has the parameters \[0, 0, 1, 2\]"),
    "no parameters": (group(params=None), "the list of parameters .* is None"),
    "a learning rate that is a word": (group(lr="fast"), "setting 'lr'"),
    "a negative learning rate": (group(lr=-1.0), "setting 'lr'"),
    "betas that are no shares": (group(betas=(0.9, 3.0)), "trial step with the optimiser state"),
    "three betas": (group(betas=(0.1, 0.2, 0.3)), "setting 'betas'"),
    "a moment that the settings want": (group(amsgrad=True), "'max_exp_avg_sq'"),
    "nothing": (dict.clear, "give a state_dict"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_does_not_fit_is_refused_and_changes_nothing(what):
    change, message = HOSTILE[what]
    model, optimizer = trained(MAKERS["fused Adam"], steps=2)
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    with pytest.raises(ValueError, match=message):
        load_optimizer_state(optimizer, poisoned(change))
    assert equal(before, (model.state_dict(), optimizer.state_dict()))
    step(model, optimizer)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_memory_that_repeats_is_copied_out():
    """The fused kernels read as many numbers as there are parameters, whatever the strides say."""
    model, optimizer = trained(MAKERS["fused Adam"])
    load_optimizer_state(optimizer, poisoned(put("exp_avg", torch.zeros(1).expand(3, 4))))
    assert optimizer.state[model[0].weight]["exp_avg"].is_contiguous()
    step(model, optimizer)


def test_an_optimiser_with_a_closure_is_refused():
    model = nn.Linear(2, 2)
    optimizer = optim.LBFGS(model.parameters())
    state = optimizer.state_dict()
    load_optimizer_state(optimizer, state)  # nothing to check yet
    state["state"] = {0: {"d": torch.zeros(6)}}
    with pytest.raises(ValueError, match="LBFGS cannot be checked, because a trial step failed"):
        load_optimizer_state(optimizer, state)


def test_a_setting_that_makes_the_step_explode_is_refused():
    """With alpha 0 a centred RMSprop divides by the spread of one gradient: by the rounding error
    of 0.
    """
    _, optimizer = trained(MAKERS["RMSprop"])
    state = copy.deepcopy(optimizer.state_dict())
    group(alpha=0.0)(state)
    with pytest.raises(ValueError, match="not finite, or far too large"):
        load_optimizer_state(optimizer, state)
