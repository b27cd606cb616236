"""When work is recorded and replayed; what a record holds is tested where there is a GPU
(tests/vision/test_captured.py, tests/decorrelation/test_cuda_graphs.py).
"""

import pytest
import torch

from pfdl._internal import cuda_graphs
from pfdl._internal.cuda_graphs import CALLS_BEFORE, MOST_KEPT, Captured, may_look, without_looking


class OnGpu:
    """Stands in for a tensor on a GPU."""

    dtype = torch.float32

    def __init__(self, *shape):
        self.shape = shape
        self.device = torch.device("cuda", 0)

    def clone(self):
        return self


class Record:
    """Stands in for a CUDA graph."""

    problem = None
    made = 0

    def __init__(self, work, inputs):
        type(self).made += 1
        work(*inputs)
        if self.problem is not None:
            raise self.problem

    def replay(self, inputs):
        return ["replayed"]


@pytest.fixture
def record(monkeypatch):
    monkeypatch.setattr(cuda_graphs, "_end_failed_recording", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(cuda_graphs, "_Record", kind := type("Record", (Record,), {}))
    return kind


class Counter:
    """Work that counts how often Python runs it, and how often it was replayed instead."""

    def __init__(self):
        self.runs = self.replays = 0

    def work(self, *inputs):
        self.runs += 1
        return ["run"]

    def replayed(self):
        self.replays += 1

    def remember(self):
        runs = self.runs
        return lambda: setattr(self, "runs", runs)

    def call(self, captured, settings=(), **given):
        given = {"replayed": self.replayed, "remember": self.remember, **given}
        (result,) = captured.run(self.work, [OnGpu(3)], settings, **given)
        return result


def test_work_runs_as_it_is_and_then_from_a_record_that_is_made_once(record):
    captured = Captured()
    counter = Counter()
    results = [counter.call(captured) for _ in range(CALLS_BEFORE + 3)]
    assert results == ["run"] * CALLS_BEFORE + ["replayed"] * 3
    assert record.made == 1
    assert captured.is_recorded
    # The call that is recorded has run in Python once, and is no replay alone
    assert (counter.runs, counter.replays) == (CALLS_BEFORE + 1, 2)


def test_other_settings_have_a_record_of_their_own_and_few_are_kept(record):
    captured = Captured()
    counter = Counter()
    for settings in range(MOST_KEPT + 1):
        for _ in range(CALLS_BEFORE + 1):
            result = counter.call(captured, settings)
        assert result == "replayed"
    assert record.made == MOST_KEPT + 1
    assert counter.call(captured, MOST_KEPT) == "replayed"
    assert counter.call(captured, 0) == "run"


def test_settings_that_change_with_every_call_are_never_recorded(record):
    captured = Captured()
    counter = Counter()
    assert {counter.call(captured, number) for number in range(30)} == {"run"}
    assert record.made == 0


def test_a_recording_that_fails_is_undone_and_not_tried_again(record):
    record.problem = RuntimeError("no such luck\nmore of it")
    captured = Captured()
    counter = Counter()
    results = [counter.call(captured) for _ in range(CALLS_BEFORE + 3)]
    assert set(results) == {"run"}
    assert captured.obstacle == "recording one failed (no such luck)"
    assert record.made == 1
    assert (counter.runs, counter.replays) == (CALLS_BEFORE + 3, 0)


@pytest.mark.parametrize(
    ("problem", "undo"),
    [(RuntimeError("no such luck"), None), (ValueError("a bad batch"), Counter().remember)],
    ids=["a failure that nothing undoes", "a mistake in the work"],
)
def test_what_cannot_be_undone_is_raised(record, problem, undo):
    record.problem = problem
    captured = Captured()
    counter = Counter()
    for _ in range(CALLS_BEFORE):
        counter.call(captured, remember=undo)
    with pytest.raises(type(problem), match=str(problem)):
        counter.call(captured, remember=undo)


def test_code_is_told_not_to_look_inside_the_block_alone():
    assert may_look()
    with without_looking():
        assert not may_look()
    assert may_look()
