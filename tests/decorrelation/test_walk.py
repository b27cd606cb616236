"""How many functions and files one call of the penalty visits: what somebody reads who wants to
know what it does.
"""

import sys
from pathlib import Path

import torch

import pfdl

HERE = Path(pfdl.__file__).parent


def test_a_call_visits_few_functions_in_few_files():
    decorrelate = pfdl.PartialDecorrelation(40, hidden=8)
    features = torch.randn(12, 40, requires_grad=True)
    decorrelate(features).backward()  # what happens once does not count
    visited = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and not code.co_name.startswith(
            "<"
        ):  # a comprehension belongs to its function
            path = Path(code.co_filename)
            if path.is_relative_to(HERE):
                visited.add((path.relative_to(HERE).as_posix(), code.co_name, code.co_firstlineno))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        decorrelate(features)
    finally:
        sys.setprofile(before)
    files = {file for file, _, _ in visited}
    assert "decorrelation/functional.py" in files
    assert {"decomposition_loss", "decorrelation_loss"} <= {name for _, name, _ in visited}
    assert len(visited) <= 25, sorted(visited)
    assert len(files) <= 7, sorted(files)
