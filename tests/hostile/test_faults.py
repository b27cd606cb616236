"""Faults of the machine under a training: a sentence or the system's own error, and the same end
when it goes on.

Elsewhere: a read-only folder in ``tests/test_runs.py``, kills in ``test_killing.py``, lost
processes of one training in ``tests/vision/test_distributed.py``, dying workers of joblib and Ray
in the laboratory's ``test_grid.py`` and ``test_ray.py``, batches that are uneven over processes in
``tests/decorrelation/test_distributed.py`` and ``tests/objectives/test_distributed.py``.
"""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from torch.utils.data import get_worker_info

from pfdl.cli.main import app
from pfdl.runs import CONFIG
from pfdl.vision import TrainingStoppedError, resume, training_data
from pfdl.vision.resume import STATE
from tests.cli.typing_commands import typed
from tests.hostile.killing_driver import TRAINING, content, pictures
from tests.hostile.tampering import full_disk
from tests.processes import Forked
from tests.vision.interrupted import assert_same_end, interrupt, interrupting, run

QUIET = f"{TRAINING} --set tensorboard=false"


def train(data, output, **how):
    return typed(f"train {data} {QUIET} -o {output}", **how)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return pictures(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """The run that nothing befell."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(data, folder)
    return folder


def with_a_worker_that_dies():
    """Train with two processes that load images, one of which kills itself after the first epoch
    was saved.
    """
    data, output = map(Path, sys.argv[1:])
    multiprocessing.set_start_method("fork", force=True)  # as a command does on Linux
    resume.SAVE_EVERY = 0.0
    load = training_data._Labelled.__getitems__

    def die(self, indices):
        if get_worker_info() is not None and (output / STATE).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return load(self, indices)

    training_data._Labelled.__getitems__ = die
    app(f"train {data} {QUIET} --set workers=2 -o {output}".split())


def test_a_dead_process_that_loads_images_is_a_sentence_and_the_training_resumes(
    data, whole, tmp_path
):
    died = Forked(with_a_worker_that_dies, data, tmp_path / "run")
    assert died.finish() == 2, died.stderr
    assert "Error: a process that loads images ended unexpectedly" in died.stderr
    assert "the same command resumes the training" in died.stderr
    assert "Traceback" not in died.stderr
    assert (tmp_path / "run" / STATE).exists()
    again = train(data, tmp_path / "run")
    assert "epoch 1/2" not in again.output
    assert content(tmp_path / "run") == content(whole)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, and what gives it so many bytes."""
    place = tmp_path / "disk"
    place.mkdir()

    def resize(size, how="remount"):
        return subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"{how},size={size}", "tmpfs", place],
            capture_output=True,
        )

    if shutil.which("mount") is None or resize(1 << 16, "rw").returncode:
        pytest.skip("only the administrator may mount a file system")
    yield place, resize
    subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_disk_that_is_full_is_a_sentence_and_the_training_resumes_with_more_room(
    share, data, whole, small_disk
):
    place, resize = small_disk
    needed = sum(path.stat().st_size for path in whole.rglob("*"))
    resize(int(share * needed))
    assert "No space left on device" in train(data, place / "run", fails=True).output
    resize(16 * needed)
    train(data, place / "run")
    assert content(place / "run") == content(whole)


def with_little_memory():
    """Train with as many bytes of memory beyond what is in use as ``ulimit -v`` would allow."""
    import resource

    data, output, room = sys.argv[1:]
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + int(room)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    app(f"train {data} {QUIET} -o {output}".split())


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="nobody says how much memory is in use"
)
def test_too_little_memory_is_an_error_and_the_training_resumes(data, whole, tmp_path):
    ended = Forked(with_little_memory, data, tmp_path / "run", 1 << 25).finish(timeout=60)
    # An exception, never a crash; a process whose memory does not even suffice to end is ended
    # here, by SIGKILL.
    assert ended > 0 or ended == -signal.SIGKILL
    train(data, tmp_path / "run")
    assert content(tmp_path / "run") == content(whole)


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_a_clock_that_jumps_changes_nothing(jump, tmp_path, monkeypatch):
    """Neither during a training nor between its stop and its resumption, when files are from the
    future or past.
    """
    expected = run(tmp_path / "expected")
    now = time.time
    calls = []
    monkeypatch.setattr(time, "time", lambda: now() + jump * (calls.append(0) or len(calls) % 3))
    with monkeypatch.context() as patch:
        patch.setattr(
            "pfdl.vision.training.RunKeeper",
            interrupting("batch_start", 6, lambda: interrupt(signal.SIGTERM)),
        )
        with pytest.raises(TrainingStoppedError):
            run(tmp_path / "run")
    for path in (tmp_path / "run").rglob("*"):
        os.utime(path, (now() + jump, now() + jump))
    assert_same_end(run(tmp_path / "run"), expected)
    assert (tmp_path / "run" / CONFIG).exists()


def test_a_page_that_a_full_disk_does_not_take_is_a_sentence_and_the_old_page_stays(tmp_path):
    table, page = tmp_path / "table.csv", tmp_path / "page.html"
    rng = np.random.default_rng(0)
    columns = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "y"])
    columns.to_csv(table, index=False)
    page.write_text("old")
    command = f"diagnose {table} --target y -o {page}"
    with full_disk():
        assert "No space left on device" in typed(command, fails=True).output
    assert page.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [page, table]
    typed(command)
    assert "<html" in page.read_text()
