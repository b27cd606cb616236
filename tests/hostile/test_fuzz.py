"""Whatever a file holds, a loader returns or says what is wrong; and nothing on disk is ever executed."""

import ast
import ctypes
import gzip
import hashlib
import json
import os
from pathlib import Path

import pytest
import torch
from hypothesis import strategies as st

import pfdl
from pfdl_lab.colored_mnist.digits import _read_file
from tests.hostile import many
from tests.hostile.targets import TARGETS, Target
from tests.processes import Forked

CASES = 25
"""For a target of share 1. With many more: python -m tests.hostile.many --cases 8000."""


def refuse(drawn):
    raise KeyError(drawn)


MEANT_TO_FAIL = {
    "crash": lambda drawn: ctypes.string_at(0),
    "refuse": refuse,
    "fill the memory": lambda drawn: bytearray(1 << 40),
}
FOUND_OUT = {"crash": "SIGSEGV", "refuse": "KeyError", "fill the memory": "MemoryError"}
"""What a driver must report of targets that are meant to fail."""


def driver():
    for name, check in MEANT_TO_FAIL.items():
        TARGETS[name] = Target(lambda folder, drawn, check=check: check(drawn), lambda: (st.integers(7, 7),), list, 0.1)
    return many.main()


@pytest.fixture(scope="module")
def reports():
    """By target, from one process; each target in a fork of it, which a crash would end alone."""
    if not hasattr(os, "fork"):
        pytest.skip("the targets are forked")
    done = Forked(driver, "--cases", CASES)
    assert done.finish() == 1, done.stderr  # for there are findings: those of the targets that are meant to fail
    return json.loads(done.stdout)


def test_no_loader_crashes_hangs_or_raises_anything_but_a_sentence(reports):
    assert {name: reports[name]["findings"] for name in TARGETS} == {name: [] for name in TARGETS}
    assert all(reports[name]["cases"] >= CASES * target.share // 2 for name, target in TARGETS.items())


@pytest.mark.parametrize("name", FOUND_OUT)
def test_the_driver_reports_what_happens_to_it(name, reports):
    (found,) = reports[name]["findings"]
    assert FOUND_OUT[name] in found
    assert "[7]" in found


def test_a_case_is_shown_in_short():
    assert many.shown([{"a": torch.ones(2, 3)}, (1, "b")]) == "[{'a': (2, 3) torch.float32}, [1, 'b']]"


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pfdl_lab.colored_mnist.digits.MAX_BYTES", 1000)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(2000)))
    unpacked = hashlib.md5(bytes(1001)).hexdigest()  # no further than that
    with pytest.raises(ValueError, match=f"is not MNIST's file of that name .md5 {unpacked}"):
        _read_file(tmp_path / "bomb.gz", hashlib.md5(bytes(2000)).hexdigest())


def test_nothing_in_the_library_can_execute_what_it_reads():
    modules = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"}
    calls = {"eval", "exec", "compile", "__import__", "read_pickle", "load_from_checkpoint"}
    for path in Path(pfdl.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not {alias.name.partition(".")[0] for alias in node.names} & modules, path
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] not in modules, path
            if isinstance(node, ast.Call):
                assert not (isinstance(node.func, ast.Name) and node.func.id in calls), path
                if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                    called = (node.func.value.id, node.func.attr)
                    assert called != ("joblib", "load"), path
                    # Arrays and tensors alone, which NumPy and PyTorch read without running anything.
                    assert called != ("np", "load") or "allow_pickle=False" in ast.unparse(node), path
                    assert called != ("torch", "load") or "weights_only=True" in ast.unparse(node), path
