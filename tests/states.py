"""What holds of everything that has a state, in one process and in several that train together."""

import copy
import io
import pickle
import re
from functools import reduce
from itertools import cycle, islice
from operator import getitem

import pytest
import torch
import torch.distributed as dist

from tests.processes import run


def equal(a, b):
    """Whether two states are the same to the last bit."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return False
        return all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return False
        return all(map(equal, a, b))
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
    """Return a copy of a state in which one value was changed, or is missing where the change is
    None.
    """
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
REFUSALS = (ValueError, TypeError, RuntimeError, AttributeError)
"""The last three are PyTorch's."""

NO_STATES = (3, None, [], {7: torch.zeros(2)})


def tensors_in(value, place=""):
    """Yield the place and the tensor, for each in a nested value."""
    if isinstance(value, torch.Tensor):
        yield place, value
    elif isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from tensors_in(inner, f"{place}/{key}")


class StateTester:
    """Tests of things with a state. A subclass has a fixture ``name`` and says how a thing is made
    and used.

    Attributes:
        ours: How the names begin of the parts that are checked in all ways; PyTorch takes weights
            that are not numbers.
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
        except REFUSALS:
            assert equal(before, self.state(thing))
            return True
        return False

    def test_a_state_survives_a_file(self, name):
        state = self.state(self.used(name))
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        assert equal(torch.load(file, weights_only=True), state)

    def test_a_state_that_fits_continues_to_the_last_bit_in_memory_of_its_own(self, name):
        source = self.used(name)
        other = self.make(name, seed=1)
        kept = self.state(source)
        before = copy.deepcopy(kept)
        self.load(other, kept)
        for seed in (2, 3):
            torch.manual_seed(seed)
            continued = self.use(other, seed)
            if seed == 2:
                assert equal(before, kept)
            torch.manual_seed(seed)
            assert equal(continued, self.use(source, seed))
        assert equal(self.state(source), self.state(other))

    def test_a_wrong_tensor_anywhere_is_refused_and_changes_nothing(self, name):
        state = copy.deepcopy(self.state(self.used(name)))
        thing = self.used(name)
        kinds = cycle(WRONG_TENSORS)  # another three for each tensor, so that it does not take long
        for path in leaves(state):
            is_tensor = isinstance(reduce(getitem, path, state), torch.Tensor)
            if is_tensor and path[0].startswith(self.ours):
                for kind in islice(kinds, 3):
                    wrong = changed(state, path, WRONG_TENSORS[kind])
                    assert self.is_refused(thing, wrong), (path, kind)
            else:  # settings that nobody reads may be anything
                for change in WRONG_VALUES.values():
                    if not self.is_refused(thing, changed(state, path, change)):
                        thing = self.used(name)
        assert torch.isfinite(torch.as_tensor(self.use(thing, seed=5))).all()

    def test_a_state_of_another_precision_is_taken_in_the_precision_of_the_thing(self, name):
        source = self.used(name)
        other = self.make(name, seed=1)
        state = copy.deepcopy(self.state(source))
        for path in leaves(state):
            value = reduce(getitem, path, state)
            if isinstance(value, torch.Tensor) and value.is_floating_point():
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


def ask(thing, tensors):
    """What a call says, and whether it left the thing as it was."""
    before = copy.deepcopy(dict(thing.state_dict()))
    try:
        thing(**tensors)
    except Exception as error:  # whatever it is, the other processes must hear of it
        said = str(error)
    else:
        said = "nothing"
    return said, equal(before, dict(thing.state_dict()))


@pytest.mark.skipif(not dist.is_gloo_available(), reason="gloo is not available")
class ProcessTester:
    """Tests of things that processes train together, each on its samples, against one process with
    all of them.

    A subclass has a fixture ``name`` and says how a thing is trained and called.

    Attributes:
        world: Number of processes.
        names: Those of the fixture.
        learnt: The part of what :meth:`train` returns that is a state, equal in all processes to
            the last bit.
        tolerances: By part, rtol and atol where others than 1e-6 and 1e-10 are wanted.
        least: How many samples they must have together.
        culprit: The process that gets what it cannot use.
        sentences: What it says, by problem.
    """

    learnt = "state"

    def train(self, name, rank=None):
        """Return by part what a process computes on its samples; without a rank one process, on the
        samples of all.
        """
        raise NotImplementedError

    def call(self, problem, is_culprit):
        """Return a new thing and the tensors to call it with; the problem may also be "empty" or
        "none".
        """
        raise NotImplementedError

    def evaluate(self, rank):
        """Return what a process gets in eval mode for samples of its own."""
        raise NotImplementedError

    def more(self, rank):
        """Return what further tests of the subclass look at, by name."""
        return {}

    @classmethod
    def work(cls, rank, world):
        """Return what a process computes for all tests, in one start, which is slow."""
        tester = cls()
        trained = {name: tester.train(name, rank) for name in cls.names}
        asked = {}
        for problem in (*cls.sentences, "empty", "none"):
            thing, tensors = tester.call(problem, rank == cls.culprit)
            asked[problem] = ask(thing, tensors)
        return {
            "trained": trained,
            "asked": asked,
            "evaluated": tester.evaluate(rank),
            **tester.more(rank),
        }

    @pytest.fixture(scope="class")
    @classmethod
    def processes(cls):
        """What each process computed."""
        return run(cls.world, f"{cls.__module__}:{cls.__qualname__}.work")

    def test_all_compute_what_one_does_on_the_union_of_their_samples(self, processes, name):
        wanted = self.train(name)
        for process in processes:
            for part, value in process["trained"][name].items():
                rtol, atol = self.tolerances.get(part, (1e-6, 1e-10))
                found = dict(tensors_in(value, part))
                expected = dict(tensors_in(wanted[part], part))
                torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)

    def test_what_is_learnt_is_the_same_in_all_to_the_last_bit(self, processes, name):
        first, *others = (process["trained"][name][self.learnt] for process in processes)
        assert all(equal(first, other) for other in others)

    def test_what_one_cannot_use_stops_all_with_a_sentence_and_updates_none(self, processes):
        of_others = (
            f"process {self.culprit} cannot use its batch and says why; nothing was updated in this"
            " one."
        )
        for problem, sentence in self.sentences.items():
            for rank, process in enumerate(processes):
                said, is_unchanged = process["asked"][problem]
                expected = sentence if rank == self.culprit else re.escape(of_others)
                assert re.match(expected, said)
                assert is_unchanged

    def test_where_all_can_use_their_batch_nothing_is_said_and_something_learnt(self, processes):
        for process in processes:
            assert process["asked"]["none"] == ("nothing", False)

    def test_a_batch_that_is_empty_everywhere_is_refused(self, processes):
        said = f"all processes together have a batch of 0; give at least {self.least} samples."
        for process in processes:
            assert process["asked"]["empty"] == (said, True)

    def test_in_eval_mode_each_is_by_itself(self, processes):
        for rank, process in enumerate(processes):
            torch.testing.assert_close(process["evaluated"], self.evaluate(rank))
