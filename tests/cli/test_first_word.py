"""A mistake in what is named is told before PyTorch is loaded, which takes seconds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MISTAKES = {
    "train nowhere": "there is no folder nowhere",
    "train nowhere.csv": "there is no table nowhere.csv",
    "sweep nowhere": "there is no folder nowhere",
    "split nowhere": "there is no folder nowhere",
    "embed nowhere": "there is no folder nowhere",
    "evaluate nowhere shapes": "there is no run nowhere",
    "evaluate run nowhere": "there is no folder nowhere",
    "evaluate photos run": "run is a run and photos is not: name the run first, then the images.",
    "refit run nowhere": "there is no folder nowhere",
    "export nowhere": "there is no run nowhere",
    "predict nowhere photos": "there is no run nowhere",
    "predict run nowhere.png": "there is no file nowhere.png",
    "predict run": "give either images or a file of their features",
    "diagnose nowhere shapes": "there is no run nowhere",
    "diagnose run nowhere": "there is no folder nowhere",
    "diagnose run shapes --compare nowhere": "there is no run nowhere",
    "diagnose --predictions nowhere.csv": "there is no table of predictions nowhere.csv",
    "diagnose nowhere.csv --target y": "there is no table nowhere.csv",
}
ASK = """
import contextlib, io, json, shlex, sys
from pfdl.cli.main import app

said = {}
for line in json.load(sys.stdin):
    with contextlib.redirect_stderr(io.StringIO()) as text, contextlib.suppress(SystemExit):
        app(shlex.split(line))
    said[line] = [text.getvalue(), "torch" in sys.modules]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What each mistake is told, and whether PyTorch was loaded by then, in a new interpreter."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "photos").mkdir()
    (folder / "run").mkdir()
    Path(folder, "run", "config.json").write_text("{}")
    how = {"capture_output": True, "text": True, "cwd": folder, "check": True}
    done = subprocess.run([sys.executable, "-c", ASK], input=json.dumps(list(MISTAKES)), **how)
    return json.loads(done.stdout)


@pytest.mark.parametrize("line", MISTAKES)
def test_a_wrong_place_is_told_before_pytorch_is_loaded(said, line):
    text, loaded = said[line]
    assert MISTAKES[line] in text
    assert not loaded
