"""Suspicion that can act: grades, what each of them drops, and the warning where a strong suspect stays."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from pfdl.data import make_mmads
from pfdl.tabular import PFDLRegressor, SelectionScreen, SelectionWarning
from pfdl.tabular import pfdl as pfdl_module
from pfdl.tabular.moments import Evidence, number_functions
from pfdl.tabular.screening import GRADES, SUSPICIOUS
from tests.tabular.reference import moments_of


def houses(seed: int, rows: int = 40_000, selected: bool = True) -> tuple[pd.DataFrame, np.ndarray]:
    """Causes of one sign that correlate, as size, rooms and quality do; rows kept where noise lies close to y."""
    rng = np.random.default_rng(seed)
    causes = rng.standard_normal((rows, 4)) + 1.5 * rng.standard_normal((rows, 1))
    y = causes.sum(axis=1) / 6 + rng.standard_normal(rows)
    table = pd.DataFrame(causes, columns=["size", "rooms", "baths", "grade"]).assign(noise=rng.standard_normal(rows))
    kept = rng.random(rows) < (np.exp(-2 * np.abs(y / y.std() - table["noise"])) if selected else 0.2)
    return table[kept], y[kept]


@pytest.mark.parametrize("seed", range(3))
def test_a_selected_column_beside_causes_of_one_sign_is_acted_on_at_strong(seed):
    X, y = houses(seed)
    with pytest.warns(SelectionWarning, match=r"tied to the label: noise.*drop='strong'\) .*; keep=\['noise'\]"):
        careful = SelectionScreen().fit(X, y)
    assert careful.get_support().all()
    assert careful.suspects_.index.tolist() == ["noise"]
    assert careful.suspects_.loc["noise", "grade"] == "strong"
    assert careful.suspects_.loc["noise", "decision"] == SUSPICIOUS
    assert "Not sure: the other columns do not behave like causes" in careful.suspects_.loc["noise", "reason"]
    assert careful.explain().index[0] == "noise"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for drop in ("strong", "suspects"):
            assert SelectionScreen(drop=drop).fit(X, y).get_feature_names_out().tolist() == X.columns[:4].tolist()
        trusting = SelectionScreen(drop="strong", keep="noise").fit(X, y)
    assert trusting.get_support().all()
    assert trusting.verdict_.startswith("Kept as asked, though behaving like an effect of the label: noise.")
    # What it is worth where rows are not selected any more.
    new_X, new_y = houses(seed + 10, selected=False)
    model = make_pipeline(SelectionScreen(drop="strong"), LinearRegression()).fit(X, y)
    assert model.score(new_X, new_y) > LinearRegression().fit(X, y).score(new_X, new_y) + 0.1


@pytest.mark.parametrize("drop", ["sure", "strong"])
def test_rows_that_nobody_selected_lose_nothing(drop):
    for seed in range(3):
        X, y = houses(seed, selected=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            screen = SelectionScreen(drop=drop).fit(X, y)
        assert screen.get_support().all()
        assert set(screen.suspects_["grade"]) <= {"suspect"}
        assert screen.verdict_.endswith("Every column is kept.")


def test_grades_rise_and_each_drops_what_the_stricter_ones_drop():
    data = make_mmads(1000, 10, 1.7, seed=0)
    kept = [SelectionScreen(drop=drop).fit(data.X, data.y).get_support() for drop in ("suspects", "strong", "sure")]
    assert (kept[0] <= kept[1]).all()
    assert (kept[1] <= kept[2]).all()
    assert SelectionScreen().fit(data.X, data.y).screening_.grade.tolist() == [0] * 5 + [GRADES.index("sure")] + [0] * 4


def test_others_add_to_the_label_as_an_f_test_says():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 4))
    y = X[:, 0] + rng.standard_normal(100)
    evidence = Evidence(moments_of(X, number_functions(y)))
    assert not evidence.adds_to_label(np.array([0]))
    assert evidence.adds_to_label(np.array([1, 2]))
    assert not evidence.adds_to_label(np.arange(4))


def test_an_explanation_can_be_read_when_it_is_printed():
    data = make_mmads(600, 10, 1.7, seed=0).frame()
    table = SelectionScreen().fit(data.drop(columns="y"), data["y"]).explain()
    assert "..." not in table.drop(columns=["relevance", "survival"]).round(2).to_string()


def test_tables_do_without_torch():
    code = (
        "import sys, numpy as np\n"
        "from pfdl.tabular import ScreenedRegressor, SelectionScreen, read_table\n"
        "X = np.random.default_rng(0).standard_normal((60, 3))\n"
        "ScreenedRegressor().fit(X, X[:, 0]); SelectionScreen().fit(X, X[:, 0]).explain()\n"
        "print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_pfdl_says_how_long_it_will_take(capsys, monkeypatch):
    clock = iter(np.arange(0.0, 1000.0, 0.7))
    monkeypatch.setattr(pfdl_module.time, "monotonic", lambda: next(clock))
    X = np.random.default_rng(0).standard_normal((50, 3))
    PFDLRegressor(max_iter=6, random_state=0).fit(X, X[:, 0])  # no terminal
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    PFDLRegressor(max_iter=6, random_state=0).fit(X, X[:, 0])
    shown = capsys.readouterr().err
    assert "PFDLRegressor: 3 of 6 iterations, 2 s left" in shown


def test_the_guide_has_the_table_that_the_results_make(monkeypatch):
    root = Path(__file__).parents[2]
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    guide = (root / "docs" / "how-to" / "tables.md").read_text(encoding="utf-8")
    assert importlib.import_module("real_tables_page").with_summary(guide) == guide
