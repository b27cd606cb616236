import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pfdl.data.images import MemoryBudget


def test_threads_never_hold_more_than_the_budget_and_small_pieces_run_side_by_side():
    budget = MemoryBudget(10)
    lock, now, most = threading.Lock(), [], []
    together = threading.Barrier(3, timeout=20)

    def work(amount):
        with budget.reserve(amount):
            with lock:
                now.append(amount)
                most.append(sum(now))
            if amount == 3:
                together.wait()  # passes only if three of these hold their share at a time
            with lock:
                now.remove(amount)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, [3, 3, 3] + [10, 7, 6, 1, 10, 5] * 20))
    assert max(most) <= 10
    with budget.reserve(10):
        pass  # all of it is back


def test_what_failed_gives_its_share_back():
    budget = MemoryBudget(10)
    with pytest.raises(KeyError), budget.reserve(10):
        raise KeyError
    with (
        budget.reserve(10),
        pytest.raises(ValueError, match="11 bytes are more than the budget of 10"),
        budget.reserve(11),
    ):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_the_whole_budget():
    budget = MemoryBudget(10)
    with budget.reserve(10):
        pid = os.fork()
        if pid == 0:
            with budget.reserve(10):
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
