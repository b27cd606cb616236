"""The journal of a sweep: whatever became of it, the sweep goes on and ends the same."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from pfdl.vision.sweep_journal import JOURNAL
from tests.processes import Forked
from tests.vision.quick_sweep import GRID, run


def kill_in_every_append():
    """Kill a sweep in the middle of each write to its journal, start it again, and compare."""
    os.chdir(sys.argv[1])
    whole = run(GRID, Path("whole"))
    appends = len(lines_of(Path("whole")))
    for number in range(1, appends + 1):
        if (pid := os.fork()) == 0:
            kill_at_append(number)
            run(GRID, Path(f"killed-{number}"))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status == -signal.SIGKILL, (number, status)
        assert run(GRID, Path(f"killed-{number}")) == whole, number
    print(appends)


def kill_at_append(number):
    synchronise = os.fsync
    appended = []

    def fsync(descriptor):
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == JOURNAL:
            appended.append(descriptor)
            if len(appended) == number:
                os.ftruncate(descriptor, os.fstat(descriptor).st_size - 9)
                os.kill(os.getpid(), signal.SIGKILL)
        synchronise(descriptor)

    os.fsync = fsync


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no system tells the file's name")
def test_a_sweep_that_is_killed_in_an_append_resumes_and_ends_the_same(tmp_path):
    killed = Forked(kill_in_every_append, tmp_path)
    assert killed.finish() == 0, killed.stderr
    assert int(killed.stdout) > 12
    assert not list(tmp_path.rglob("*.damaged"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return folder / "run", *run(GRID, folder / "run")


@pytest.mark.parametrize("name", [JOURNAL, f"{JOURNAL}.lock"])
def test_a_link_that_lies_there_is_neither_followed_nor_waited_for(name, whole, tmp_path):
    folder, results, best = whole
    output = shutil.copytree(folder, tmp_path / "run")
    (output / name).unlink(missing_ok=True)
    (output / name).symlink_to(tmp_path / "elsewhere")
    assert run(GRID, output) == (results, best)
    assert not (output / name).is_symlink()
    assert not (tmp_path / "elsewhere").exists()


def lines_of(folder):
    return (folder / JOURNAL).read_bytes().splitlines(keepends=True)
