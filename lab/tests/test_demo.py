"""The demonstration: what it shows is what the commands gave, and a stopped one resumes."""

import re
from dataclasses import replace

import pytest
from tests.browsing import CHROMIUM, faults
from typer.testing import CliRunner

from pfdl.cli.main import app
from pfdl.runs import read_run
from pfdl_lab import demo

TINY = {
    "TABLES": replace(demo.TABLES, seeds=2, num_test=100),
    "DIGITS": replace(demo.DIGITS, restarts=1, max_train=200, max_hidden=4),
    "IMAGES": replace(demo.IMAGES, backbone="mlp", epochs=1, seeds=1, image_size=8),
    "JOBS": 1,
}


@pytest.fixture
def tiny(monkeypatch):
    """The same code on little data, in this process, with short trainings and without the slowest
    methods of MMADS.
    """
    for name, value in TINY.items():
        monkeypatch.setattr(demo, name, value)
    least_squares = demo.mmads.METHODS["OLS"]
    methods = {"OLS": least_squares, "PFDL": least_squares}  # what it finds is tested elsewhere
    monkeypatch.setattr(demo.mmads, "METHODS", methods)
    short = {
        key: replace(row, config=replace(row.config, steps=41))
        for key, row in demo.colored_mnist.ROWS.items()
    }
    monkeypatch.setattr(demo.colored_mnist, "ROWS", short)


def show(folder):
    return CliRunner().invoke(app, ["demo", "-o", str(folder)])


@pytest.fixture
def stopped(tiny, monkeypatch, tmp_path):
    """A demonstration that was stopped in its last part."""

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(demo.images, "run", interrupted)
        ended = show(tmp_path)
    assert ended.exit_code == 130
    assert "the same command resumes" in ended.stderr
    assert not (tmp_path / "demo.html").exists()
    return tmp_path


def words_of(page):
    text = page.read_text(encoding="utf-8")
    plain = re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", " ", text, flags=re.DOTALL))
    return " ".join(plain.split())


@pytest.mark.usefixtures("nothing_counted")
def test_a_demonstration_that_was_stopped_resumes_and_ends_with_a_page(stopped, request):
    """In one test, so that the demonstration runs once in whichever process."""
    weights = stopped / "photographs" / "runs" / "erm" / "model.safetensors"
    trained = weights.stat().st_mtime_ns
    ended = show(stopped)
    assert ended.exit_code == 0, ended.output
    assert weights.stat().st_mtime_ns == trained
    assert ended.stdout.splitlines()[-1] == str(stopped / "demo.html")
    assert "visits" in ended.stdout
    before, after = (float(share) for share in re.findall(r"(\d+) %", ended.stdout)[:2])
    assert after > before + 20  # the repair is one
    check_runs(stopped)
    check_page(words_of(stopped / "demo.html"), f"all {before:.0f} {after:.0f}")
    if CHROMIUM:
        assert faults(request.getfixturevalue("visit"), stopped / "demo.html") == []


def check_runs(folder):
    """Check that each experiment is a run, and that its pages are there."""
    claimed = [run for run in folder.iterdir() if (run / "config.json").is_file()]
    kinds = {run.name: read_run(run).kind for run in claimed}
    assert kinds == {"mmads": "mmads", "colored-digits": "colored-mnist", "images": "images"}
    for page in ("photographs/found.html", "photographs/proved.html", "paper.html"):
        assert (folder / page).is_file()


def check_page(shown, accuracies):
    """Check that the page is short, and tells of each experiment."""
    assert len(shown.split()) <= 700
    assert accuracies in shown
    for about in ("Tables selected with a bias", "Digits whose colours", "Images whose contexts"):
        assert about in shown
