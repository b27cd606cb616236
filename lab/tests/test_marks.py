"""Figures of README and of the pages are what the records say; their words may change freely.

A figure is marked where it stands, by an HTML comment with its key.
"""

import re
from pathlib import Path

import pytest
from lab.tests.report.made_up import EVIDENCE, needs_evidence

from pfdl_lab.register import figures_of

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*/*.md"))]
MARK = re.compile(
    r"<!--([^<>]+/[^<>]+)-->(?:\*\*)?"
    r"([+−]?[\d.]+(?: ± [\d.]+| to [+−]?[\d.]+| of \d+)?)"
)


def marked(page):
    return MARK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_marked_figures_are_those_of_the_records(page):
    needs_evidence()
    wrong = [
        f"{key}: {figure}"
        for key, figure in marked(page)
        if figure.rstrip(".") not in set(figures_of(EVIDENCE, key))
    ]
    assert wrong == []


def test_a_figure_that_drifts_is_seen():
    needs_evidence()
    key = "phases/pacs/pfdl,erm/early/1:5"
    assert "+3.6 ± 0.4" in set(figures_of(EVIDENCE, key))
    assert "+3.7 ± 0.4" not in set(figures_of(EVIDENCE, key))


def test_every_mark_is_followed_by_a_figure():
    for page in PAGES:
        marks = re.findall(r"<!--[^<>\s]+/[^<>]+-->", page.read_text(encoding="utf-8"))
        assert len(marks) == len(marked(page)), page
    assert sum(len(marked(page)) for page in PAGES) > 100
