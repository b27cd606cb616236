"""How many files one call of the penalty visits: what somebody opens who wants to know what it
does.
"""

import sys
from pathlib import Path

import torch

import pfdl

HERE = Path(pfdl.__file__).parent


def files_visited(call):
    """Return the files of the library in which a function is called."""
    visited = set()

    def note(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(HERE):
            visited.add(path.relative_to(HERE).as_posix())

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return visited


def test_a_call_visits_at_most_eight_files_and_the_equations_are_one_of_them():
    decorrelate = pfdl.PartialDecorrelation(40, hidden=8)
    features = torch.randn(12, 40, requires_grad=True)
    decorrelate(features).backward()  # what happens once does not count
    files = files_visited(lambda: decorrelate(features))
    assert "decorrelation/functional.py" in files
    assert len(files) <= 8, sorted(files)
