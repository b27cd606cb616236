"""The scripts of ``lab/pages``: what they measure, and the page that one of them writes."""

from pathlib import Path

import numpy as np
from tests.tabular.test_environments import changing_table

import icp
import real_tables_page
import shapes_gap
from pfdl.data import Shapes

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "tables.md"


def test_plain_training_on_shapes_loses_ten_points_between_the_ratios(monkeypatch):
    """The promise of the data set, measured by the functions of its page on one small split."""
    monkeypatch.setattr(shapes_gap, "TEST_RATIOS", ("5:1", "1:5"))
    result = shapes_gap.measure(Shapes(per_cell=40), epochs=6, seed=0)
    assert result["test-5:1"] - result["test-1:5"] >= 10


def test_the_guide_has_the_table_that_the_results_make():
    guide = GUIDE.read_text(encoding="utf-8")
    assert real_tables_page.with_summary(guide) == guide


def test_icp_keeps_the_causes_whose_distribution_shifts():
    """The rival of the benchmark of environments."""
    model = icp.ICPRegressor().fit(*changing_table(0, n=500, shift=2.0))
    assert model.kept_.tolist() == [True, True, False]
    assert not model.rejected_
    assert np.allclose(model.coef_[:2], [1.0, -1.0], atol=0.1)
    assert model.coef_[2] == 0.0
    assert (0, 1) in model.invariant_sets_
