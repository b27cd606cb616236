"""Whatever a file holds, a loader returns or says what is wrong; and nothing on disk is ever executed."""

import ast
import gzip
import hashlib
import os
import tempfile
from pathlib import Path

import pytest
import torch.distributed as dist
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

import pfdl
from pfdl_lab.digits import _read_file
from tests.hostile import file_targets, state_targets  # noqa: F401, they enter their targets in the list
from tests.hostile.tampering import TARGETS

CASES = int(os.environ.get("PFDL_CASES", "25"))
"""For a target of share 1. With many more: PFDL_CASES=8000 python -m pytest -o timeout=0 tests/hostile/test_fuzz.py."""
MEMORY = 4 << 30
"""Bytes that a case may take."""


@pytest.fixture
def bounded_memory():
    """Let a bomb be a MemoryError instead of the end of the machine."""
    resource = pytest.importorskip("resource")
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    before = resource.getrlimit(resource.RLIMIT_AS)
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def no_process_group():
    """Leave the group of one process in which parameters are sharded."""
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.usefixtures("nothing_counted", "bounded_memory", "no_process_group")
@pytest.mark.parametrize("name", TARGETS)
def test_no_loader_crashes_hangs_or_raises_anything_but_a_sentence(name, tmp_path):
    target = TARGETS[name]

    def attack(drawn):
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            target.check(Path(folder), *drawn)

    for example in target.examples():
        attack(example)
    how = settings(
        max_examples=max(1, round(CASES * target.share)),
        database=None,
        derandomize=True,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    how(given(st.tuples(*target.strategies()))(attack))()


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pfdl_lab.digits.MAX_BYTES", 1000)
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
