"""An operation that raises leaves a penalty or a weighting as it was, and a state is loaded whole
or not at all.
"""

import copy

import pytest
import torch

from pfdl import make_objective
from tests.objectives.parts import PARTS, WITHOUT_STATE, batch, call, used
from tests.states import StateTester, each, equal


def filled(number):
    """Return a function that fills a tensor with a number; whole numbers lose a row instead."""

    def fill(value):
        return torch.full_like(value, number) if value.is_floating_point() else value[:-1]

    return fill


BAD_TENSORS = {
    "NaN": filled(torch.nan),
    "infinity": filled(torch.inf),
    "huge": lambda value: value * 1e30 if value.is_floating_point() else value + 10**12,
    "negative": lambda value: -1 - value.abs(),
    "one row short": lambda value: value[:-1],
    "more dimensions": lambda value: value[None, ..., None],
    "a list": lambda value: value.tolist(),
    "nothing": lambda value: None,
}
# The last is PyTorch's word for a label that is no class
REFUSALS = (ValueError, TypeError, RuntimeError, IndexError)


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("bad", BAD_TENSORS)
def test_a_call_that_raises_changes_nothing(name, bad):
    for needed in used(name).needs:
        part = used(name)
        tensors = batch(seed=1)
        tensors[needed] = BAD_TENSORS[bad](tensors[needed])
        before = copy.deepcopy(part.state_dict())
        try:
            call(part, tensors)
        except REFUSALS:
            assert equal(before, part.state_dict())
            assert torch.isfinite(call(part, batch(seed=5))).all()  # and it still works


def cast(tensors, dtype):
    return {
        name: value.to(dtype) if value.is_floating_point() else value
        for name, value in tensors.items()
    }


class TestStates(StateTester):
    name = each(PARTS)

    def make(self, name, seed=0):
        torch.manual_seed(seed)
        return PARTS[name]()

    def use(self, thing, seed=0):
        return call(thing, batch(seed))

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
    def test_tensors_of_any_precision_are_taken_and_what_is_learnt_is_in_single(self, name, dtype):
        given = cast(batch(), dtype)
        part = self.make(name)
        result = call(part, given)
        twin = self.make(name)
        expected = call(twin, cast(given, torch.float32))
        torch.testing.assert_close(result.float(), expected, rtol=torch.finfo(dtype).eps, atol=1e-3)
        assert equal(part.state_dict(), twin.state_dict())

    def test_in_eval_mode_nothing_is_learnt(self, name):
        part = self.used(name).eval()
        before = copy.deepcopy(part.state_dict())
        self.use(part, seed=3)
        assert equal(part.state_dict(), before)

    def test_an_unknown_entry_is_refused(self, name):
        part = self.used(name)
        assert self.is_refused(part, {**part.state_dict(), "something.else": torch.zeros(1)})
        assert (name in WITHOUT_STATE) == (not part.state_dict())


class TestStatesOfObjectives(StateTester):
    """All parts of a state are taken, or none."""

    name = each(["irm+pfdl+stablenet"])

    def make(self, name, seed=0):
        torch.manual_seed(seed)
        return make_objective(name, 6, irm={"anneal": 1}, pfdl={"hidden": 4})

    def use(self, thing, seed=0):
        tensors = batch(seed)
        known = {"features": tensors["features"], "environments": tensors["environments"]}
        return thing(tensors["logits"], tensors["labels"], **known)
