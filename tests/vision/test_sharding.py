"""States that are loaded into an optimiser of sharded parameters: one process, as each of several does it."""

import copy
import math
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from pfdl.vision.sharding import is_sharded, load_optimizer, shard, whole
from tests.states import equal

MAKERS = {
    "SGD": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "AdamW": partial(torch.optim.AdamW, lr=1e-2),
}


@pytest.fixture(scope="module")
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def trained(mesh, name, steps=2):
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    shard(backbone, mesh)
    assert is_sharded(backbone)
    optimizer = MAKERS[name](backbone.parameters())
    for _ in range(steps):
        step(backbone, optimizer)
    return backbone, optimizer


def step(backbone, optimizer):
    optimizer.zero_grad()
    backbone(torch.linspace(-1, 1, 20).view(5, 4)).square().sum().backward()
    optimizer.step()


def weights(backbone):
    return [parameter.full_tensor().detach().clone() for parameter in backbone.parameters()]


def put(value):
    def change(state):
        for moments in state["state"].values():
            for name in moments:
                if name != "step":
                    moments[name] = value(moments[name])

    return change


def short_and_fused(state):
    put(lambda _: torch.zeros(1))(state)
    state["param_groups"][0] |= {"fused": True, "foreach": False}


def without_moments(state):
    for moments in state["state"].values():
        moments.pop("momentum_buffer", None)
        moments.pop("exp_avg", None)


def setting(**values):
    return lambda state: state["param_groups"][0].update(values)


HOSTILE = {
    "moments of another shape": (put(lambda _: torch.zeros(1)), r"has shape \(1,\); it must be \(3, 4\)"),
    "the same, and a fused step, which crashed Python": (short_and_fused, r"has shape \(1,\)"),
    "moments that are not numbers": (put(lambda one: one * math.nan), "NaN or an infinity"),
    "a learning rate that is not a number": (setting(lr=math.nan), "the setting 'lr' of the optimiser state is nan"),
    "no moments": (without_moments, "parameter 0 of the optimiser state has"),
    "moments of whole numbers": (put(lambda one: one.long()), "has dtype torch.int64"),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("what", HOSTILE)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(mesh, name, what):
    change, sentence = HOSTILE[what]
    backbone, optimizer = trained(mesh, name)
    before = copy.deepcopy((weights(backbone), whole(optimizer.state_dict())))
    state = copy.deepcopy(whole(optimizer.state_dict()))
    change(state)
    with pytest.raises(ValueError, match=sentence):
        load_optimizer(optimizer, state)
    assert equal(before, (weights(backbone), whole(optimizer.state_dict())))
    step(backbone, optimizer)
    assert all(value.isfinite().all() for value in weights(backbone))


@pytest.mark.parametrize("name", MAKERS)
def test_a_fused_flag_alone_is_not_taken(mesh, name):
    backbone, optimizer = trained(mesh, name)
    state = copy.deepcopy(whole(optimizer.state_dict()))
    state["param_groups"][0]["fused"] = True
    load_optimizer(optimizer, state)
    assert optimizer.param_groups[0]["fused"] is None
    step(backbone, optimizer)


@pytest.mark.parametrize("name", MAKERS)
def test_an_honest_state_continues_to_the_last_bit(mesh, name):
    backbone, optimizer = trained(mesh, name)
    twin, other = trained(mesh, name, steps=0)
    with torch.no_grad():
        for mine, theirs in zip(twin.parameters(), backbone.parameters(), strict=True):
            mine.copy_(theirs)
    load_optimizer(other, whole(optimizer.state_dict()))
    moments = [value for one in other.state.values() for key, value in one.items() if key != "step"]
    assert all(isinstance(moment, DTensor) for moment in moments)
    for _ in range(2):
        step(backbone, optimizer)
        step(twin, other)
    assert equal(weights(backbone), weights(twin))
    assert equal(whole(optimizer.state_dict()), whole(other.state_dict()))
