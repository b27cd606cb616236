"""Threads: what is asked for comes in order, nothing is begun once nobody wants it, and what only
one may use is refused to a second.
"""

import copy
import pickle
import threading

import pytest

from pfdl._internal.threads import map_in_threads
from pfdl._internal.validation import OneThreadAtATime


@pytest.mark.parametrize("per_task", [1, 3, 100])
def test_results_come_in_the_order_of_the_items(per_task):
    squares = map_in_threads(lambda number: number**2, range(50), 4, per_task=per_task)
    assert list(squares) == [number**2 for number in range(50)]


@pytest.mark.parametrize("per_task", [1, 100])
def test_nothing_is_begun_once_a_call_raised_or_the_caller_gave_up(per_task):
    begun = []
    may_go_on = threading.Event()

    def work(number):
        begun.append(number)
        if number == 1:
            raise KeyboardInterrupt
        if number > 1:
            may_go_on.wait()

    with pytest.raises(KeyboardInterrupt):
        list(map_in_threads(work, range(100), 2, per_task=per_task))
    may_go_on.set()
    for thread in threading.enumerate():
        if thread.name.startswith("ThreadPoolExecutor"):
            thread.join()
    assert len(begun) <= 4


def is_free(guard):
    """Whether a thread of its own may use what is guarded; else it is told why not."""
    answers = []

    def enter():
        try:
            with guard.inside():
                answers.append("free")
        except RuntimeError as error:
            answers.append(str(error))

    other = threading.Thread(target=enter)
    other.start()
    other.join()
    (answer,) = answers
    assert answer == "free" or "another thread is in the middle of a call of this penalty" in answer
    return answer == "free"


def test_a_second_thread_is_refused_until_the_first_one_is_done():
    guard = OneThreadAtATime("penalty")
    with guard.inside():
        assert not is_free(guard)
        with guard.inside():
            assert not is_free(guard)
        assert not is_free(guard)
    assert is_free(guard)


def test_a_copy_of_what_is_in_use_is_free():
    guard = OneThreadAtATime("penalty")
    with guard.inside():
        assert is_free(copy.deepcopy(guard))
        assert is_free(pickle.loads(pickle.dumps(guard)))
