from dataclasses import replace

import pytest
from typer.testing import CliRunner

from pfdl.cli.main import app
from pfdl.runs import read_run
from pfdl_lab import demo
from pfdl_lab.grid import PACK

TINY = {
    "TABLES": replace(demo.TABLES, seeds=2, num_test=100),
    "DIGITS": replace(demo.DIGITS, restarts=1, max_train=200, max_hidden=4),
    "IMAGES": replace(demo.IMAGES, backbone="mlp", epochs=1, seeds=1, image_size=8),
    "JOBS": 1,
}
METHODS = {name: demo.mmads.METHODS[name] for name in ("OLS", "Screened OLS", "OLS on S (oracle)")}


@pytest.fixture
def tiny(monkeypatch):
    """The same code on little data, in this process, with short trainings and without the slowest
    methods of MMADS.
    """
    for name, value in TINY.items():
        monkeypatch.setattr(demo, name, value)
    quick = {"PFDL": METHODS["OLS"], "DWR": METHODS["OLS"]}  # what they find is tested elsewhere
    monkeypatch.setattr(demo.mmads, "METHODS", {**METHODS, **quick})
    short = {
        key: replace(row, config=replace(row.config, steps=41))
        for key, row in demo.colored_mnist.ROWS.items()
    }
    monkeypatch.setattr(demo.colored_mnist, "ROWS", short)


def when_written(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob(f"*/*/{PACK}")}


@pytest.mark.usefixtures("nothing_counted")
def test_a_demonstration_that_is_stopped_goes_on_and_ends_with_a_page(tiny, monkeypatch, tmp_path):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(demo.images, "run", interrupted)
        stopped = CliRunner().invoke(app, ["demo", "-o", str(tmp_path)])
    assert stopped.exit_code == 130
    assert "the same command resumes" in stopped.stderr
    assert not (tmp_path / "report.html").exists()
    done = when_written(tmp_path)
    assert len(done) == 1 + 2  # of tables; contexts and rows of digits

    ended = CliRunner().invoke(app, ["demo", "-o", str(tmp_path)])
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.splitlines()[-1] == str(tmp_path / "report.html")
    assert {path: when_written(tmp_path)[path] for path in done} == done  # not done again
    assert not list(tmp_path.glob("*/*/*.json"))  # a finished run keeps no file for each task
    printed = " ".join(ended.stdout.split())
    for title in (
        "Tables under biased selection (MMADS)",
        "Colored digits (Colored-MNIST)",
        "Images under context shift",
    ):
        assert title in printed
    assert "which do not act on y and should get 0, on average: least squares" in printed
    assert "where the colours are reversed; GroupDRO with inferred contexts for" in printed
    assert "at 5:1, as in training, and" in printed
    kinds = {folder.name: read_run(folder).kind for folder in tmp_path.iterdir() if folder.is_dir()}
    assert kinds == {"mmads": "mmads", "colored-digits": "colored-mnist", "images": "images"}
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("<li><p><strong>") == 3  # a sentence for each experiment at the top
    assert "Unfinished" not in page
