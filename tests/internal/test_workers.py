"""Processes that work for this one: Ctrl-C is not theirs to answer, and they end with it."""

import json
import os
import signal
import threading

import pytest
import torch
from joblib.externals.loky import get_reusable_executor

from pfdl._internal.workers import WATCH, run_tasks, share_of_threads
from tests.processes import Forked


def names_of_threads():
    return [thread.name for thread in threading.enumerate()]


class ReadInAWorker:
    """An argument that is read as the names of the threads that run while it is read."""

    def __reduce__(self):
        return names_of_threads, ()


def look(threads_while_read):
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ()) if os.name == "posix" else ()
    return {
        "worker": os.getpid(),
        "watches": WATCH in threads_while_read,
        "is deaf": signal.SIGINT in blocked,
        "threads": torch.get_num_threads(),
    }


def ask_workers():
    """Print what two workers answer, as JSON, and whether this process is deaf then."""
    tasks = [{"threads_while_read": ReadInAWorker()} for _ in range(4)]
    answers = [answer for _, answer in run_tasks(look, tasks, jobs=2, threads=1)]
    print(json.dumps({"here": look([]), "there": answers}))
    get_reusable_executor().shutdown(kill_workers=True)  # a fork does not do so at its end


@pytest.mark.skipif(os.name != "posix", reason="Windows has no masks of signals")
def test_a_worker_watches_its_parent_before_it_reads_a_task_and_leaves_ctrl_c_to_it():
    process = Forked(ask_workers)
    assert process.finish() == 0, process.stderr
    told = json.loads(process.stdout)
    assert not told["here"]["is deaf"]
    assert len(told["there"]) == 4
    for answer in told["there"]:
        assert answer["worker"] != told["here"]["worker"]
        assert answer["watches"]
        assert answer["is deaf"]
        assert answer["threads"] == 1


def test_one_task_at_a_time_runs_in_this_process():
    ((_, answer),) = run_tasks(look, [{"threads_while_read": []}])
    assert answer["worker"] == os.getpid()
    assert WATCH not in names_of_threads()


def test_tasks_never_have_more_threads_than_this_process_was_given(monkeypatch):
    monkeypatch.setattr("joblib.cpu_count", lambda: 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert [share_of_threads(at_once) for at_once in (1, 2, 4, 16)] == [3, 3, 2, 1]
