"""What holds for all tests."""

import atexit
import contextlib
import functools
import gc
import importlib
import os
import sys

import pytest
import typer.testing
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

pytest_plugins = ["tests.browsing"]

settings.register_profile("pfdl", deadline=None)  # tests never measure time
settings.load_profile("pfdl")

# "all cores" is one here: the others run tests, and to start is slow
os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")

FORKING = (
    "hostile/test_killing.py",
    "lab/hostile/test_attacks.py",
    "vision/test_distributed.py",
    "lab/test_grid.py",
    "decorrelation/test_distributed.py",
    "hostile/test_faults.py",
    "objectives/test_distributed.py",
    "internal/test_extras.py",
    "cli/test_own_files.py",
)
EXPORTING = ("lab/test_pages.py", "vision/test_export.py", "cli/test_images.py")
TOGETHER = (FORKING, EXPORTING)
"""Each in one process: the server that forks and the exporter to ONNX take many seconds to start.
"""

SLOWEST_FIRST = (
    *FORKING,
    "lab/test_ray.py",
    "test_docs.py",
    "contexts/test_inference.py",
    *EXPORTING,
    "decorrelation/kernels/test_interpreter.py",
    "lab/test_register.py",
    "vision/test_sweep.py",
    "vision/test_resume.py",
    "lab/mmads/test_run.py",
    "lab/report/test_browser.py",
    "lab/test_demo.py",
    "vision/test_diagnosis.py",
    "vision/test_training.py",
)
"""So that no process is still at work on one of them when all the others have nothing left."""


class ByFile(LoadFileScheduling):
    """Give each file to one process, and those that belong together to the same."""

    def _split_scope(self, nodeid):
        file = _name(nodeid)
        return next((files[0] for files in TOGETHER if file in files), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return ByFile(config, log)


@pytest.fixture(scope="session", autouse=True)
def one_command_line():
    """Make the parser of the command line once: to make it takes longer than most commands that
    tests run.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def children_uncounted(monkeypatch):
    """Count no lines in the interpreters that a test starts: to count makes their imports half as
    slow again.
    """
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)


@pytest.fixture
def nothing_counted(children_uncounted):
    """Count no lines in a test that runs what others test line by line."""
    counter = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(counter)


def pytest_configure(config):
    """Import what is slow before any line is counted."""
    if hasattr(config, "workerinput"):  # one of the processes that run all tests
        # The first, so called last: to take a million objects apart takes seconds
        atexit.register(os._exit, 0)
        gc.disable()  # until all is imported and collected
        for name in ("lightning.pytorch", "matplotlib.pyplot", "sklearn.ensemble", "timm"):
            with contextlib.suppress(ImportError):  # what needs it says so itself
                importlib.import_module(name)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
    """Let one process count the lines that all of them run while they import what they test."""
    counter = sys.gettrace()
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0":
        sys.settrace(None)
    yield
    sys.settrace(counter)


def pytest_collection_finish():
    """Never look for garbage among the million objects of what is imported."""
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)  # at the end everything goes


def pytest_collection_modifyitems(items):
    """Move the slowest files to the front; xdist hands files out in this order."""
    places = {name: place for place, name in enumerate(SLOWEST_FIRST)}
    items.sort(key=lambda item: places.get(_name(item.nodeid), len(places)))


def _name(nodeid):
    return nodeid.partition("::")[0].replace("tests/", "")
