"""Processes for tests: forks of one process that has imported all that is slow, so that each of
them starts at once.
"""

import contextlib
import multiprocessing
import os
import pkgutil
import signal
import socket
import sys
import tempfile
from datetime import timedelta
from multiprocessing import forkserver
from pathlib import Path

import coverage
import pytest
import torch
import torch.distributed as dist

ROOT = Path(__file__).parents[1]


class Forked:
    """A process of its own that calls a function, as ``python -m its.module arguments`` would.

    Args:
        main: A function at the top level of a module.
        *arguments: What it finds in ``sys.argv``.
        **variables: Variables of its environment besides those of this process.
    """

    def __init__(self, main, *arguments, **variables):
        self.folder = tempfile.TemporaryDirectory()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
        how = _forks()
        self.process = how.Process(
            target=_become, args=(main, arguments, environment, self.folder.name)
        )
        self.process.start()

    @property
    def is_running(self):
        return self.process.is_alive()

    @property
    def stdout(self):
        return Path(self.folder.name, "1").read_text()

    @property
    def stderr(self):
        return Path(self.folder.name, "2").read_text()

    def finish(self, timeout=280):
        """Wait for its end, end what it started and left, and return its exit status: negative if
        by that signal.
        """
        self.process.join(timeout)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.kill()

    def kill(self):
        """End it, and nothing that it started."""
        self.process.kill()
        self.process.join()
        return self.process.exitcode


def _forks():
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["tests.preloaded"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # a fork has no threads but its own
        patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)  # each fork counts by itself
        forkserver.ensure_running()
    return forks


def _become(main, arguments, environment, folder):
    os.setsid()  # a group of its own, with all that it starts
    for number in (1, 2):
        os.dup2(os.open(Path(folder, str(number)), os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    sys.argv = [sys.modules[main.__module__].__file__, *map(str, arguments)]
    counter = coverage.process_startup(force=True)
    try:
        sys.exit(main())
    finally:
        if counter:
            counter.stop()
            counter.save()


def run(world, work):
    """Return what ``module:function`` returns, given rank and number, in so many processes; all
    must succeed.
    """
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        where = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(one.getsockname()[1]),
            "WORLD_SIZE": str(world),
        }
    with tempfile.TemporaryDirectory() as folder:
        arguments = (_work_together, work, folder)
        processes = [
            Forked(*arguments, **where, RANK=str(rank), LOCAL_RANK=str(rank))
            for rank in range(world)
        ]
        status = [process.finish() for process in processes]
        assert status == [0] * world, "\n".join(
            process.stdout + process.stderr for process in processes
        )
        return [torch.load(Path(folder, f"{rank}.pt")) for rank in range(world)]


def _work_together():
    """Connect with the other processes and save what the function that is named returns."""
    work = pkgutil.resolve_name(sys.argv[1])
    folder = sys.argv[2]
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    torch.save(work(rank, dist.get_world_size()), Path(folder, f"{rank}.pt"))
    dist.destroy_process_group()
