"""Whatever a file holds, a loader returns or says what is wrong; and nothing on disk is ever executed."""

import ast
import gzip
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pfdl
from pfdl.data.idx import read_idx
from tests.hostile import many
from tests.hostile.targets import TARGETS

ROOT = Path(__file__).parents[2]
CASES = 25
"""For a target of share 1. With many more: python -m tests.hostile.many --cases 8000."""


def environment():
    """That of a process which imports what this one does."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the targets are forked")
def test_no_loader_crashes_hangs_or_raises_anything_but_a_sentence():
    """In processes of their own: a crash of the interpreter would take the tests with it."""
    command = [sys.executable, "-m", "tests.hostile.many", "--cases", str(CASES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment())
    reports = json.loads(done.stdout)
    assert {name: report["findings"] for name, report in reports.items()} == {name: [] for name in TARGETS}
    assert all(report["cases"] >= CASES * TARGETS[name].share // 2 for name, report in reports.items())
    assert done.returncode == 0


DRIVER = """
import ctypes, json, sys
from pathlib import Path
from hypothesis import strategies as st
from tests.hostile import many, targets

def refuse(folder, drawn):
    raise KeyError(drawn)

checks = {
    "crash": lambda folder, drawn: ctypes.string_at(0),
    "refuse": refuse,
    "fill the memory": lambda folder, drawn: bytearray(1 << 40),
}
for name, check in checks.items():
    targets.TARGETS[name] = targets.Target(check, lambda: (st.integers(7, 7),), list, 1)
print(json.dumps({name: many.attack(name, 3, 0, Path(sys.argv[1])) for name in checks}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the targets are forked")
def test_the_driver_reports_what_happens_to_it(tmp_path):
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment())
    reports = json.loads(done.stdout)
    for name, words in {"crash": "SIGSEGV", "refuse": "KeyError", "fill the memory": "MemoryError"}.items():
        (found,) = reports[name]["findings"]
        assert words in found
        assert "[7]" in found


def test_a_case_is_shown_in_short():
    assert many.shown([{"a": torch.ones(2, 3)}, (1, "b")]) == "[{'a': (2, 3) torch.float32}, [1, 'b']]"


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pfdl.data.idx.MAX_BYTES", 1000)
    (tmp_path / "bomb").write_bytes(gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", 2000) + bytes(2000)))
    with pytest.raises(ValueError, match="unpacks to more than 1000 bytes"):
        read_idx(tmp_path / "bomb", 1)


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
