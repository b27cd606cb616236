from dataclasses import replace

import pytest
from typer.testing import CliRunner

from pfdl._internal.runs import read_run
from pfdl.cli.main import app
from pfdl.data.mmads import SETTINGS
from pfdl.experiments import demo

TINY = demo.Sizes(
    tables=replace(demo.mmads.QUICK, cells=((200, 10, 1.7),), settings=SETTINGS[:1], seeds=2, num_test=100),
    digits=replace(demo.DIGITS, rows=("erm",), restarts=2, max_train=100, max_hidden=4),
    images=replace(demo.IMAGES, rows=("resnet", "pfdl"), per_cell=13, epochs=1, seeds=1, image_size=16),
)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(demo, "Sizes", lambda: TINY)


def when_written(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("*/*/*.json")}


def test_a_demonstration_that_is_stopped_goes_on_and_ends_with_a_page(tiny, monkeypatch, tmp_path):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(demo.contexts, "run", interrupted)
        stopped = CliRunner().invoke(app, ["demo", "-o", str(tmp_path)])
    assert stopped.exit_code == 130
    assert "the same command resumes from there" in stopped.stderr
    assert not (tmp_path / "report.html").exists()
    done = when_written(tmp_path)
    assert len(done) == 3  # two tables and a row of digits

    ended = CliRunner().invoke(app, ["demo", "-o", str(tmp_path)])
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.splitlines()[-1] == str(tmp_path / "report.html")
    assert {path: when_written(tmp_path)[path] for path in done} == done  # not done again
    assert "Images under context shift\n  ResNet (ERM) falls from" in ended.stdout
    kinds = {folder.name: read_run(folder).kind for folder in tmp_path.iterdir() if folder.is_dir()}
    assert kinds == {"mmads": "mmads", "colored-digits": "colored-mnist", "contexts": "contexts"}
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (
        "ResNet, PFDL and plain training of the same network have one repetition in common" in page
    )  # one seed tells nothing, and the page says so
    assert "Unfinished" not in page


def test_a_folder_that_holds_another_run_is_left_alone(tiny, tmp_path):
    (tmp_path / "mmads").mkdir()
    (tmp_path / "mmads" / "mine.txt").write_text("mine")
    result = CliRunner().invoke(app, ["demo", "-o", str(tmp_path)])
    assert result.exit_code == 2
    assert "has files in it but no run of pfdl" in result.stderr
    assert [path.name for path in (tmp_path / "mmads").iterdir()] == ["mine.txt"]


def test_the_usual_size_compares_plain_training_and_pfdl_on_paired_seeds():
    assert demo.Sizes().images.rows == ("resnet", "pfdl")
    assert demo.Sizes().images.seeds > 1
    assert {"erm", "irm"} < set(demo.Sizes().digits.rows)
