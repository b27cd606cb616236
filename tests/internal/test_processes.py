"""What processes tell each other; over several of them, tests/vision/test_distributed.py and others
look.
"""

import pytest

from pfdl._internal import processes
from pfdl._internal.processes import OtherProcessError, report_lost_process

LOST = RuntimeError("[/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:2954")


@pytest.mark.parametrize(
    ("world", "error", "wanted"),
    [
        (2, LOST, ConnectionError),
        (1, LOST, RuntimeError),
        (2, RuntimeError("shapes do not fit"), RuntimeError),
        (2, OtherProcessError("the first process stopped: gloo"), OtherProcessError),
    ],
)
def test_a_lost_process_is_a_sentence_and_other_errors_stay(world, error, wanted, monkeypatch):
    monkeypatch.setattr(processes, "world_size", lambda: world)
    monkeypatch.setattr(processes, "rank", lambda: 1)
    with pytest.raises(wanted) as caught, report_lost_process():
        raise error
    assert (caught.value is error) is (wanted is not ConnectionError)
    if wanted is ConnectionError:
        assert "another process of this training ended, so that process 1 stops" in str(
            caught.value
        )
