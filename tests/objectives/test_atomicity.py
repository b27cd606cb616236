"""An operation that raises leaves a penalty or a weighting as it was, and a state is loaded whole or not at all."""

import copy

import pytest
import torch

from pfdl import make_objective
from tests.objectives.parts import PARTS, WITHOUT_STATE, batch, call, used
from tests.states import equal


def assert_unchanged(part, operation):
    """Run the operation; if it raises, the part must be as it was, and still work. Return whether it raised."""
    before = copy.deepcopy(part.state_dict())
    try:
        operation()
    except (ValueError, TypeError, RuntimeError, IndexError):  # PyTorch's word for a label that is no class
        assert equal(before, part.state_dict())
        assert torch.isfinite(call(part, batch(seed=5))).all()
        return True
    return False


BAD_TENSORS = {
    "NaN": lambda value: torch.full_like(value, torch.nan) if value.is_floating_point() else value[:-1],
    "infinity": lambda value: torch.full_like(value, torch.inf) if value.is_floating_point() else value[:-1],
    "huge": lambda value: value * 1e30 if value.is_floating_point() else value + 10**12,
    "negative": lambda value: -1 - value.abs(),
    "one row short": lambda value: value[:-1],
    "more dimensions": lambda value: value[None, ..., None],
    "a list": lambda value: value.tolist(),
    "nothing": lambda value: None,
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("bad", BAD_TENSORS)
def test_a_call_that_raises_changes_nothing(name, bad):
    for needed in used(name).needs:
        part, tensors = used(name), batch(seed=1)
        tensors[needed] = BAD_TENSORS[bad](tensors[needed])
        assert_unchanged(part, lambda part=part, tensors=tensors: call(part, tensors))


def garbage(state):
    """Return states that cannot be loaded, made from one that can."""
    for key, value in state.items():
        rest = {other: kept for other, kept in state.items() if other != key}
        yield rest
        yield {**rest, key: "word"}
        yield {**rest, key: None}
        if isinstance(value, torch.Tensor):
            yield {**rest, key: torch.zeros(7, 7, 7)}
            yield {**rest, key: torch.full((*value.shape, 2), torch.nan)}
            if value.is_floating_point():
                yield {**rest, key: torch.full_like(value, torch.nan)}
        else:
            yield {**rest, key: {}}
            yield {**rest, key: dict.fromkeys(value, "word")}
            yield {**rest, key: dict.fromkeys(value, -5)}
    yield {**state, "something.else": torch.zeros(1)}


@pytest.mark.parametrize("name", PARTS)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(name):
    for bad in garbage(copy.deepcopy(used(name).state_dict())):
        part = used(name)
        assert assert_unchanged(part, lambda part=part, bad=bad: part.load_state_dict(bad)), bad
    assert (name in WITHOUT_STATE) == (not used(name).state_dict())


@pytest.mark.parametrize("name", PARTS)
def test_a_state_that_fits_is_taken(name):
    source, target = used(name), PARTS[name]()
    target.load_state_dict(source.state_dict())
    assert equal(source.state_dict(), target.state_dict())
    torch.manual_seed(1)
    wanted = call(source, batch(seed=2))
    torch.manual_seed(1)
    assert torch.equal(call(target, batch(seed=2)), wanted)


def test_an_objective_takes_all_parts_of_a_state_or_none():
    def fresh():
        objective = make_objective("irm+pfdl+stablenet", 6, irm={"anneal": 1}, pfdl={"hidden": 4})
        tensors = batch()
        objective(
            tensors["logits"],
            tensors["labels"],
            features=tensors["features"],
            environments=tensors["environments"],
        )
        return objective

    good = fresh().state_dict()
    for bad in garbage(copy.deepcopy(good)):
        objective = fresh()
        before = copy.deepcopy(objective.state_dict())
        with pytest.raises((ValueError, RuntimeError)):
            objective.load_state_dict(bad)
        assert equal(before, objective.state_dict())


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("state", [3, None, [], {7: torch.zeros(2)}])
def test_what_is_no_state_is_a_sentence(name, state):
    part = used(name)
    before = copy.deepcopy(part.state_dict())
    with pytest.raises(ValueError, match="give what state_dict"):
        part.load_state_dict(state)
    assert equal(before, part.state_dict())


@pytest.mark.parametrize("name", PARTS)
def test_copies_go_their_own_way(name):
    original = used(name)
    twin = copy.deepcopy(original)
    before = copy.deepcopy(original.state_dict())
    call(twin, batch(seed=3))
    assert equal(before, original.state_dict())
