"""The code in README and docs runs, the examples run, and links lead somewhere.

A block marked ``python notest`` is a fragment that needs several processes.
"""

import functools
import re
import runpy
import sys
from pathlib import Path

import pytest

from pfdl.data import Shapes

ROOT = Path(__file__).parents[1]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = [ROOT / "README.md", CONTRIBUTING, *sorted((ROOT / "docs").rglob("*.md"))]
# These run with its tests
OF_THE_LABORATORY = [page for page in PAGES if "from pfdl_lab" in page.read_text()]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(scope="module", autouse=True)
def shapes_drawn_once():
    """Draw the images that several pages begin with once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pfdl.data.opening.Shapes", functools.cache(Shapes))
        yield


def name(path):
    return str(path.relative_to(ROOT))


@pytest.mark.usefixtures("nothing_counted")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in OF_THE_LABORATORY], ids=name
)
def test_python_blocks_run(page):
    run_blocks(page)
    # A block this test would not see
    assert not re.search(r"^```py\b", page.read_text(), flags=re.MULTILINE)


def run_blocks(page):
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    namespace = {"__name__": "__docs__"}
    for block in blocks:
        exec(compile(block, name(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_page_sends_a_user_to_what_is_internal(page):
    assert "pfdl._internal" not in page.read_text()


def test_the_settings_that_contributing_shows_are_those_of_the_code():
    (block,) = re.findall(
        r"^```python notest\n(.*?)^```", CONTRIBUTING.read_text(), flags=re.DOTALL | re.MULTILINE
    )
    code = (ROOT / "src" / "pfdl" / "vision" / "config.py").read_text()
    assert all(f"    {line}\n" in code for line in block.splitlines())


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_local_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.usefixtures("nothing_counted")
@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_examples_run(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


def test_the_page_of_a_diagnosis_quotes_what_the_commands_printed():
    page = (ROOT / "docs" / "tutorials" / "diagnosis.md").read_text()
    folder = ROOT / "docs" / "tutorials" / "diagnosis-printed"
    printed = {line for path in folder.glob("*.txt") for line in path.read_text().splitlines()}
    quoted = [
        line
        for block in re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        for line in block.splitlines()
    ]
    assert len(quoted) > 15
    assert [line for line in quoted if line not in printed] == []


def test_every_promise_of_security_names_a_test_that_exists():
    promises = (ROOT / "SECURITY.md").read_text().partition("## What is not promised")[0]
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", promises)
    defined = {
        path: re.findall(r"^(?:def|class) (\w+)\(", (ROOT / path).read_text(), re.MULTILINE)
        for path, _ in named
    }
    assert [f"{path}::{test}" for path, test in named if test not in defined[path]] == []
    points = re.findall(r"^- .*?(?=^- |^\*\*|\Z)", promises, flags=re.MULTILINE | re.DOTALL)
    assert len(points) > 10
    assert [point for point in points if "tests/" not in point] == []
