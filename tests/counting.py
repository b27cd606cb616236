"""Where coverage counts lines and where it does not: it makes Python half as slow again, and much of it is not ours."""

import functools
import os
import sys

MEASURED = "COVERAGE_PROCESS_CONFIG"
"""By this variable a new Python learns that its lines are to be counted."""

COUNTED = {}
"""The environment of a new process whose lines are to be counted, because they run nowhere else; see conftest.py."""


def start_no_counting(patch):
    """Let new processes count nothing from now on, unless they get what is in COUNTED."""
    if MEASURED in os.environ:
        COUNTED[MEASURED] = os.environ[MEASURED]
    patch.delenv(MEASURED, raising=False)


def uncounted(function):
    """Return a function whose lines, and those of all that it calls, are not counted."""

    @functools.wraps(function)
    def call(*arguments, **settings):
        counter = sys.gettrace()
        sys.settrace(None)
        try:
            return function(*arguments, **settings)
        finally:
            sys.settrace(counter)
            _take_up()

    return call


def _take_up():
    """Do nothing: a counter takes hold at the next call, and must see the end of the function that is left then."""
