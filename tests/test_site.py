"""The main pages of the documentation in a real browser: everybody can read them, on a phone too,
and nothing runs out of its box.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browsing import faults, needs_browser

pytestmark = needs_browser

DOCS = Path(__file__).parents[1] / "docs"
PAGES = (
    "index",
    "tutorials/quickstart",
    "tutorials/diagnosis",
    "how-to/which-tool",
    "results/index",
    "explanation/words",
)
WIDER = "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent)"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """These pages alone, which takes seconds; what leads to the others leads nowhere here."""
    pytest.importorskip("furo")
    docs, built = tmp_path_factory.mktemp("docs") / "docs", tmp_path_factory.mktemp("site")
    shutil.copytree(DOCS, docs, ignore=shutil.ignore_patterns("*.md", "*.ipynb", "api"))
    for page in PAGES:
        shutil.copy(DOCS / f"{page}.md", docs / f"{page}.md")
    without_code = ["-D", "nb_execution_mode=off", "-D", "autosummary_generate=0"]
    built_by = [sys.executable, "-m", "sphinx", "-Q", *without_code, docs, built]
    subprocess.run(built_by, check=True)
    return built


@pytest.mark.parametrize("page", PAGES)
def test_everybody_can_read_a_page(visit, site, page):
    assert faults(visit, site / f"{page}.html") == []


@pytest.mark.parametrize("page", ["tutorials/quickstart", "tutorials/diagnosis"])
def test_no_command_and_no_verdict_runs_out_of_its_box(visit, site, page):
    seen = visit(site / f"{page}.html", viewport={"width": 1280, "height": 900}).page
    assert seen.locator("pre").count() > 1
    assert seen.locator("pre").evaluate_all(WIDER) == []


def test_what_is_hard_to_read_is_found(visit, tmp_path):
    words = "<p style='color: {}; background: {}'>{}</p>"
    page = tmp_path / "page.html"
    page.write_text(
        words.format("#767676", "#fff", "just dark enough")
        + words.format("#777", "#fff", "too pale")
        + words.format("rgb(0 0 0 / 50%)", "#fff", "too thin")
        + "<img src='a.png'><img src='b.png' alt='words'>"
        + "<div style='width: 500px; background: black'></div>"
    )
    found = faults(visit, page)
    assert [one.split(":")[1].strip() for one in found[:2]] == ["too pale", "too thin"]
    assert [one for one in found if "no words for" in one and "a.png" in one]
    assert found[-1].startswith("a phone must scroll sideways")
    assert len(found) == 6
