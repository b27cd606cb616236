"""Every page of results says what its CSV files say, and the scripts of ``lab/pages`` measure what
they say.
"""

import importlib
import re
import shlex
import shutil
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from tests.cli.typing_commands import typed
from tests.tabular.test_environments import changing_table

import icp
import shapes_gap
from pfdl.data import Shapes

RESULTS = Path(__file__).parents[2] / "docs" / "results"
MARK = re.compile(r"<!-- All below is written by `pfdl (.*?)` -->")
PAGES = sorted(
    page.name for page in RESULTS.glob("*.md") if MARK.search(page.read_text(encoding="utf-8"))
)


def test_the_pages_of_this_laboratory_are_checked():
    assert {"colored-mnist.md", "decorrelation.md", "images.md", "mmads.md", "phases.md"} <= set(
        PAGES
    )


@pytest.mark.usefixtures("nothing_counted")
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_its_command_makes_of_its_results(name, tmp_path, monkeypatch):
    page = (RESULTS / name).read_text(encoding="utf-8")
    command = MARK.search(page)[1].split()
    shutil.copytree(
        RESULTS, tmp_path / "docs" / "results", ignore=shutil.ignore_patterns("*.png", "*.jpg")
    )
    for picture in RESULTS.glob("*/*.png"):
        shutil.copy(picture, tmp_path / picture.relative_to(RESULTS.parents[1]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pfdl", *command])
    # The page holds the names of its pictures
    monkeypatch.setattr("pfdl_lab.report.blocks.Plot.svg", lambda plot: "")
    typed(shlex.join(command))
    assert (tmp_path / "docs" / "results" / name).read_text(encoding="utf-8") == page
    for picture in re.findall(r"\]\((.*?\.(?:png|svg|jpg))\)", page):
        assert (RESULTS / picture).is_file()
    tables = [path.relative_to(RESULTS.parents[1]).as_posix() for path in RESULTS.rglob("*.csv")]
    assert any(table.startswith(part) for table in tables for part in command), (
        "a page without its figures as data"
    )


def test_the_page_of_contexts_has_the_tables_that_its_scripts_make_of_csv_files():
    page = (RESULTS / "contexts.md").read_text(encoding="utf-8")
    for script in ("contexts", "contexts_false_alarms", "contexts_pretrained"):
        assert importlib.import_module(script).tables() in page, script
    dwr, nico = (
        importlib.import_module("dwr_weights"),
        (RESULTS / "nico.md").read_text(encoding="utf-8"),
    )
    assert all(table in nico for table in (dwr.table(), dwr.readouts()))
    spuco = importlib.import_module("spuco_mnist")
    for name in (
        f"spuco-mnist-{kind}.csv"
        for kind in ("own-rules", "difficulties", "wrong-labels", "chosen")
    ):
        assert spuco.tables(RESULTS / name) in page, name
        assert spuco.comparisons(RESULTS / name) in page, name


def test_the_control_of_spuco_mnist_draws_classes_equally_often(monkeypatch):
    script = importlib.import_module("spuco_mnist")
    monkeypatch.setattr(
        script.Draw, "train", lambda draw, sampler: draw.labels[list(sampler)].bincount().tolist()
    )
    settings = Namespace(mnist=None, images=200, magnitude="large", strength=0.9, label_noise=0.0)
    draw = script.Draw(settings, seed=0)
    assert len(set(draw.labels[:200].bincount().tolist())) > 1
    assert draw.balanced("classes", 1.0) == [40] * 5


def test_the_page_of_real_tables_has_the_tables_that_its_csv_files_make():
    page = (RESULTS / "real-tables.md").read_text(encoding="utf-8")
    script = importlib.import_module("real_tables_page")
    assert all(table in page for table in script.tables())
    listed, selected = script.read("real-tables", "real-tables-injected")
    tied = selected[
        (selected["half"] == "report") & (selected["correlation"].abs() >= script.CORRELATED)
    ]
    acted = int(tied["grade"].isin(("strong", "sure")).sum())
    assert f"{len(listed)} tables of R" in page
    assert f"acts on {acted} of {len(tied)} ({acted / len(tied):.0%})" in page


def test_plain_training_on_shapes_loses_ten_points_between_the_ratios(monkeypatch):
    """The promise of the data set, measured by the functions of its page on one small split."""
    monkeypatch.setattr(shapes_gap, "TEST_RATIOS", ("5:1", "1:5"))
    result = shapes_gap.measure(Shapes(per_cell=40), epochs=6, seed=0)
    assert result["test-5:1"] - result["test-1:5"] >= 10


def test_icp_keeps_the_causes_whose_distribution_shifts():
    """The rival of the benchmark of environments."""
    model = icp.ICPRegressor().fit(*changing_table(0, n=500, shift=2.0))
    assert model.kept_.tolist() == [True, True, False]
    assert not model.rejected_
    assert np.allclose(model.coef_[:2], [1.0, -1.0], atol=0.1)
    assert model.coef_[2] == 0.0
    assert (0, 1) in model.invariant_sets_
