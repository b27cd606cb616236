"""Tasks that take turns in one process."""

import threading
from contextlib import nullcontext

import pytest

from pfdl._internal import interleaving
from pfdl._internal.interleaving import pause, run_interleaved
from pfdl._internal.workers import run_tasks, shares_gpus


def noting(log, name, turns):
    def work():
        for turn in range(turns):
            log.append((name, turn))
            pause()
        return name.upper()

    return work


def test_tasks_take_turns_at_their_pauses_and_the_next_begins_where_one_ends():
    log = []
    tasks = [(name, noting(log, name, turns)) for name, turns in {"a": 1, "b": 3, "c": 2}.items()]
    results = dict(run_interleaved(tasks, at_a_time=2))
    assert results == {"a": "A", "b": "B", "c": "C"}
    assert log[:2] == [("a", 0), ("b", 0)]
    assert log.index(("c", 0)) < log.index(("b", 2))
    assert log.index(("c", 0)) > log.index(("a", 0))
    assert sorted(log) == [("a", 0), ("b", 0), ("b", 1), ("b", 2), ("c", 0), ("c", 1)]


def test_nobody_runs_between_two_pauses_of_another():
    running = []

    def work():
        for _ in range(50):
            running.append(threading.get_ident())
            assert len(set(running)) == 1
            running.clear()
            pause()

    assert len(list(run_interleaved([(n, work) for n in range(4)], at_a_time=4))) == 4


def test_an_error_is_raised_here_and_ends_the_others_at_their_next_pause():
    log = []

    def fail():
        pause()
        raise ValueError("it failed")

    tasks = [("endless", noting(log, "endless", 10**9)), ("bad", fail)]
    with pytest.raises(ValueError, match="it failed"):
        list(run_interleaved(tasks, at_a_time=2))
    assert len(log) < 10


def test_a_caller_that_has_enough_ends_the_tasks():
    log = []
    tasks = [("short", noting(log, "short", 1)), ("endless", noting(log, "endless", 10**9))]
    results = run_interleaved(tasks, at_a_time=2)
    assert next(results) == ("short", "SHORT")
    results.close()
    ended = len(log)
    assert ended < 10
    assert len(log) == ended


def test_alone_a_pause_does_nothing():
    assert pause() is None


def name_of_thread(number):
    pause()
    return number, threading.current_thread() is threading.main_thread()


def test_with_one_job_on_a_gpu_tasks_take_turns_in_threads_of_this_process(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(interleaving, "_stream", lambda device: nullcontext())
    tasks = [{"number": number} for number in range(6)]
    results = [result for _, result in run_tasks(name_of_thread, tasks, 1, 1, "cuda")]
    assert sorted(results) == [(number, False) for number in range(6)]


def test_nvidias_service_is_noticed_and_its_absence(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert not shares_gpus()
    (tmp_path / "control").touch()
    assert shares_gpus()
