"""The first path of the quick start, command for command: a folder, a model, a diagnosis, a better
model, ONNX.
"""

import re
import runpy
import shlex
from pathlib import Path

import pytest

from pfdl.vision.evaluation import read_evaluations
from tests.cli.typing_commands import typed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorials" / "quickstart.md").read_text(encoding="utf-8")
PATH = re.search(r"## From a folder of photos.*?^```\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[
    1
].splitlines()


def walk():
    """Run the page's first path but for the laboratory's report; return what the commands printed,
    by their names.
    """
    printed = {}
    for line in PATH:
        program, *arguments = shlex.split(line, comments=True)
        if program == "python":
            runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
        elif arguments[0] != "report":
            assert program == "pfdl"
            printed.setdefault(arguments[0], []).append(typed(shlex.join(arguments)).output)
    return printed


@pytest.mark.usefixtures("nothing_counted")
def test_the_quick_start_ends_with_a_better_model_and_onnx(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = walk()
    assert list(printed) == ["train", "diagnose", "export"]
    assert "Sets, as the data has them: train 360, validation 40, test 200." in printed["train"][0]
    first, compared = printed["diagnose"]
    assert "Does erm rely on the context? YES" in first
    # What to try next is what the page does next
    suggested = first.partition("pfdl train photos/ ")[2].splitlines()[0]
    assert suggested.startswith(
        "--set manifest=runs/erm/manifest.csv --backbone small --contexts inferred "
    )
    assert "--sampler groups" in suggested
    assert "Found 2 contexts" in printed["train"][1]
    assert "erm relies more on the context than sampler" in compared

    erm, sampler = (
        read_evaluations(tmp_path / "runs" / name)["test"].overall for name in ("erm", "sampler")
    )
    assert sampler > erm + 0.2
    assert (tmp_path / "runs" / "sampler" / "export" / "model.onnx").is_file()
