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

settings.register_profile("pfdl", deadline=None)  # tests never measure time
settings.load_profile("pfdl")

os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")  # "all cores" is one here: the others run tests, and to start is slow

SLOWEST_FIRST = (
    *("hostile/test_killing.py", "vision/test_distributed.py", "experiments/test_ray.py", "contexts/test_inference.py"),
    *("test_docs.py", "hostile/test_fuzz.py", "decorrelation/kernels/test_interpreter.py", "cli/test_quickstart.py"),
    *("vision/test_resume.py", "experiments/colored_mnist/test_run.py", "experiments/mmads/test_run.py"),
    *("internal/test_extras.py", "experiments/test_published.py", "cli/test_images.py"),
)
"""So that no process is still at work on one of them when all the others have nothing left."""


@pytest.fixture(scope="session", autouse=True)
def few_numbers_of_contexts():
    """Try four numbers of clusters, not eleven: that search is most of a small training; tests/contexts tests it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pfdl.contexts.candidates.NUMBERS", (2, 3, 4, 5))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_command_line():
    """Make the parser of the command line once: to make it takes longer than most commands that tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", functools.cache(typer.main.get_command))
        yield


def pytest_configure(config):
    """Import what is slow before any line is counted, which would make it half as slow again."""
    if not hasattr(config, "workerinput"):
        return  # not one of the processes that run all tests
    counter = sys.gettrace()
    sys.settrace(None)
    gc.disable()
    for name in ("lightning.pytorch", "matplotlib.pyplot", "sklearn.ensemble", "timm"):
        with contextlib.suppress(ImportError):  # what needs it says so itself
            importlib.import_module(name)
    gc.enable()
    sys.settrace(counter)


def pytest_collection_finish():
    """Never look for garbage among the million objects of what is imported."""
    gc.freeze()
    atexit.register(gc.unfreeze)  # at the end everything goes


def pytest_collection_modifyitems(items):
    """Move the slowest files to the front; xdist hands files out in this order."""
    places = {name: place for place, name in enumerate(SLOWEST_FIRST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0].removeprefix("tests/"), len(places)))
