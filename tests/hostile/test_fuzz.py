"""Whatever a file holds, a loader returns or says what is wrong; and nothing on disk is ever executed."""

import ast
import gzip
import hashlib
import json
import os
from pathlib import Path

import pytest

import pfdl
from pfdl.data.digits import _read_file
from tests.hostile import many
from tests.hostile.registry import TARGETS
from tests.processes import Forked

CASES = 25
"""For a target of share 1. With many more: python -m tests.hostile.many --cases 8000."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the targets are forked")
def test_no_loader_crashes_hangs_or_raises_anything_but_a_sentence():
    """All targets from one process, each in a fork of it, which a crash would end alone."""
    done = Forked(many.main, "--cases", CASES)
    done.finish()
    reports = json.loads(done.stdout)
    assert {name: reports[name]["findings"] for name in TARGETS} == {name: [] for name in TARGETS}
    assert all(reports[name]["cases"] >= CASES * target.share // 2 for name, target in TARGETS.items())


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pfdl.data.digits.MAX_BYTES", 1000)
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
