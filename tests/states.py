"""What holds of everything that has a state."""

import copy
import pickle
from functools import reduce
from itertools import cycle, islice
from operator import getitem

import pytest
import torch


def equal(a, b):
    """Whether two states are the same to the last bit."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


def each(names):
    """Return a fixture ``name`` that runs the tests of a class once for each of these names."""
    return pytest.fixture(params=list(names))(lambda self, request: request.param)


def leaves(state, path=()):
    """Yield every place of a nested state that holds no mapping."""
    for key, value in state.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


def changed(state, path, change):
    """Return a copy of a state in which one value was changed, or is missing where the change is None."""
    state = copy.deepcopy(state)
    inner = state
    for key in path[:-1]:
        inner = inner[key]
    value = inner.pop(path[-1])
    if change is not None:
        inner[path[-1]] = change(value)
    return state


WRONG_TENSORS = {
    "missing": None,
    "a word": lambda value: "word",
    "nothing": lambda value: None,
    "a list": lambda value: value.tolist() if value.dim() else [1],
    "another shape": lambda value: torch.zeros(7, 7, 7),
    "one number more": lambda value: torch.zeros((*value.shape, 2)),
    "not a number": lambda value: value * torch.nan if value.is_floating_point() else "word",
    "complex": lambda value: value.to(torch.complex64),
    "no memory": lambda value: value.to("meta"),
}
WRONG_VALUES = {
    "missing": None,
    "a word": lambda value: "word",
    "negative": lambda value: -5,
    "empty": lambda value: {},
}
NO_STATES = (3, None, [], {7: torch.zeros(2)})


class StateTester:
    """Tests of things with a state. A subclass has a fixture ``name`` and says how a thing is made and used.

    Attributes:
        ours: How the names begin of the parts that are checked in all ways; PyTorch takes weights that are not numbers.
    """

    ours = ""

    def make(self, name, seed=0):
        """Return a new thing."""
        raise NotImplementedError

    def use(self, thing, seed=0):
        """Do with it what changes its state, and return a result."""
        raise NotImplementedError

    def state(self, thing):
        """Return its whole state, which may be the thing's own memory."""
        return dict(thing.state_dict())

    def load(self, thing, state):
        """Load a state."""
        thing.load_state_dict(state)

    def used(self, name):
        """Return a thing that has a state already."""
        thing = self.make(name)
        self.use(thing)
        return thing

    def is_refused(self, thing, state):
        """Load a state; return whether it was refused, after which nothing may have changed."""
        before = copy.deepcopy(self.state(thing))
        try:
            self.load(thing, state)
        except (ValueError, TypeError, RuntimeError, AttributeError):  # the last three are PyTorch's
            assert equal(before, self.state(thing))
            return True
        return False

    def test_a_state_that_fits_continues_to_the_last_bit_in_memory_of_its_own(self, name):
        source, other = self.used(name), self.make(name, seed=1)
        kept = self.state(source)
        before = copy.deepcopy(kept)
        self.load(other, kept)
        for seed in (2, 3):
            torch.manual_seed(seed)
            found = self.use(other, seed)
            assert seed == 3 or equal(before, kept)
            torch.manual_seed(seed)
            assert equal(found, self.use(source, seed))
        assert equal(self.state(source), self.state(other))

    def test_a_wrong_tensor_anywhere_is_refused_and_changes_nothing(self, name):
        state = copy.deepcopy(self.state(self.used(name)))
        thing = self.used(name)
        kinds = cycle(WRONG_TENSORS)  # another three for each tensor, so that it does not take long
        for path in leaves(state):
            if isinstance(reduce(getitem, path, state), torch.Tensor) and path[0].startswith(self.ours):
                for what in islice(kinds, 3):
                    assert self.is_refused(thing, changed(state, path, WRONG_TENSORS[what])), (path, what)
            else:  # settings that nobody reads may be anything
                for change in WRONG_VALUES.values():
                    if not self.is_refused(thing, changed(state, path, change)):
                        thing = self.used(name)
        assert torch.isfinite(torch.as_tensor(self.use(thing, seed=5))).all()

    def test_a_state_of_another_precision_is_taken_in_the_precision_of_the_thing(self, name):
        source, other = self.used(name), self.make(name, seed=1)
        state = copy.deepcopy(self.state(source))
        for path in leaves(state):
            if torch.is_tensor(value := reduce(getitem, path, state)) and value.is_floating_point():
                state = changed(state, path, torch.Tensor.double)
        self.load(other, state)
        assert equal(self.state(other), self.state(source))

    def test_what_is_no_state_is_refused(self, name):
        thing = self.used(name)
        assert all(self.is_refused(thing, state) for state in NO_STATES)

    def test_copies_and_pickles_go_their_own_way(self, name):
        source = self.used(name)
        before = copy.deepcopy(self.state(source))
        for twin in (copy.deepcopy(source), pickle.loads(pickle.dumps(source))):
            assert equal(self.state(twin), before)
            self.use(twin, seed=3)
            assert equal(self.state(source), before)
