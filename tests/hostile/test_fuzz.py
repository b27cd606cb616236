"""Whatever a file holds, a loader returns or says what is wrong; and nothing on disk is ever
executed.
"""

import ast
from pathlib import Path

import pytest

import pfdl
from tests.hostile import feature_targets, file_targets, state_targets, sweep_targets
from tests.hostile.tampering import attack, targets_in


@pytest.mark.usefixtures("nothing_counted")
@pytest.mark.parametrize(
    "target", targets_in(feature_targets, file_targets, state_targets, sweep_targets)
)
def test_no_loader_crashes_hangs_or_raises_anything_but_a_sentence(target, tmp_path):
    attack(target, tmp_path)


YAML = {"safe_load", "parse", "YAMLError", "SafeLoader", "AliasEvent"}
"""What of PyYAML makes plain values and events alone."""


EXECUTING = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle"}
CALLS = {"eval", "exec", "compile", "__import__"}
METHODS = {"read_pickle", "load_from_checkpoint"}
NEEDED = {("np", "load"): "allow_pickle=False", ("torch", "load"): "weights_only=True"}
"""Without which a reader of arrays and tensors would run what is in them."""


def modules_in(node):
    """Return the names of the packages that a statement imports."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").partition(".")[0]}
    return set()


def runs_what_it_reads(node):
    if not isinstance(node, ast.Call):
        return False
    if "allow_pickle=True" in map(ast.unparse, node.keywords):
        return True
    if isinstance(node.func, ast.Name):
        return node.func.id in CALLS
    if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
        return True
    if not isinstance(node.func, ast.Attribute) or not isinstance(node.func.value, ast.Name):
        return False
    home, name = node.func.value.id, node.func.attr
    if home == "yaml":
        return name not in YAML
    if (home, name) in NEEDED:
        return NEEDED[home, name] not in ast.unparse(node)
    return (home, name) == ("joblib", "load")


def test_nothing_in_the_library_can_execute_what_it_reads():
    for path in Path(pfdl.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not modules_in(node) & EXECUTING, path
            assert not runs_what_it_reads(node), f"{path}:{node.lineno}"


@pytest.mark.parametrize(
    "line",
    [
        "eval(x)",
        "joblib.load(x)",
        "pd.read_pickle(x)",
        "Module.of.load_from_checkpoint(x)",
        "np.load(x)",
        "np.load(x, allow_pickle=True)",
        "np.lib.format.read_array(x, allow_pickle=True)",
        "torch.load(x, weights_only=False)",
        "yaml.load(x)",
    ],
)
def test_what_would_execute_it_is_noticed(line):
    assert any(runs_what_it_reads(node) for node in ast.walk(ast.parse(line)))
