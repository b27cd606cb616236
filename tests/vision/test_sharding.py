"""States that are loaded into an optimiser of sharded parameters: one process, as each of several
does it.
"""

import copy
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from pfdl.vision.resume import gather_sharded, load_optimizer
from tests.internal.test_optimizer_state import OptimizerTester, trained
from tests.states import each

MAKERS = {
    "SGD": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "AdamW": partial(torch.optim.AdamW, lr=1e-2),
}


@pytest.fixture(scope="module")
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def weights(backbone):
    return [parameter.full_tensor().detach().clone() for parameter in backbone.parameters()]


class TestStates(OptimizerTester):
    """What must hold of any optimiser holds of one whose parameters are sharded."""

    name = each(MAKERS)

    @pytest.fixture(autouse=True)
    def _sharded(self, mesh):
        self.mesh = mesh

    def make(self, name, seed=0):
        return trained(MAKERS[name], steps=0, mesh=self.mesh)

    def use(self, thing, seed=0):
        super().use(thing, seed)
        return torch.cat([value.flatten() for value in weights(thing[0])])

    def state(self, thing):
        return gather_sharded(thing[1].state_dict())

    def load(self, thing, state):
        load_optimizer(thing[1], state)

    test_copies_and_pickles_go_their_own_way = None  # a process group cannot be copied

    def test_moments_stay_sharded(self, name):
        thing = self.used(name)
        self.load(thing, copy.deepcopy(self.state(thing)))
        for moments in thing[1].state.values():
            for key, moment in moments.items():
                assert key == "step" or isinstance(moment, DTensor)

    def test_a_short_moment_and_a_fused_step_which_crashed_python(self, name):
        thing = self.used(name)
        state = copy.deepcopy(self.state(thing))
        state["param_groups"][0] |= {"fused": True, "foreach": False}
        self.load(thing, state)
        assert thing[1].param_groups[0]["fused"] is None
        for moments in state["state"].values():
            moments.update({key: torch.zeros(1) for key in moments if key != "step"})
        assert self.is_refused(thing, state)
        assert self.use(thing).isfinite().all()
