"""Whatever a file holds, a loader returns or says what is wrong; and nothing on disk is ever
executed.
"""

import ast
from pathlib import Path

import pytest

import pfdl
from tests.hostile import file_targets, state_targets, sweep_targets
from tests.hostile.tampering import attack, targets_in


@pytest.mark.usefixtures("nothing_counted")
@pytest.mark.parametrize("target", targets_in(file_targets, state_targets, sweep_targets))
def test_no_loader_crashes_hangs_or_raises_anything_but_a_sentence(target, tmp_path):
    attack(target, tmp_path)


YAML = {"safe_load", "parse", "YAMLError", "SafeLoader", "AliasEvent"}
"""What of PyYAML makes plain values and events alone."""


def test_nothing_in_the_library_can_execute_what_it_reads():
    modules = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle"}
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
                    if called[0] == "yaml":
                        assert called[1] in YAML, path
                    # Arrays and tensors alone, which NumPy and PyTorch read without running
                    # anything.
                    assert called != ("np", "load") or "allow_pickle=False" in ast.unparse(node), (
                        path
                    )
                    assert called != ("torch", "load") or "weights_only=True" in ast.unparse(
                        node
                    ), path
