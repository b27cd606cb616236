"""Tables in any units and bad ones: a result or a sentence that names the column, never one that is
not finite.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline

from pfdl.data import make_mmads
from pfdl.tabular import DWRRegressor, LeakScreen, PFDLRegressor, ScreenedRegressor

REGRESSORS = [
    ScreenedRegressor(),
    PFDLRegressor(max_iter=30, random_state=0),
    DWRRegressor(max_iter=30),
]
UNITS = [1e-8, 1e-7, 1e-3, 1e4, 1e7, 1e8]


def fit_and_predict(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of DWR, whose weights such tables mislead
        return model.fit(X, y).predict(X)


@pytest.mark.parametrize(
    ("model", "n", "tables"),
    [*((ScreenedRegressor(), n, 60) for n in (30, 60, 200)), *((m, 60, 1) for m in REGRESSORS)],
)
def test_duplicate_columns_with_an_exactly_linear_y(model, n, tables):
    for seed in range(tables):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, 2 + seed % 9 + 1))
        X[:, 2] = X[:, 0]
        y = X @ rng.standard_normal(X.shape[1])
        assert np.allclose(fit_and_predict(model, X, y), y, atol=1e-6)


@pytest.mark.parametrize("model", REGRESSORS)
def test_constant_y_and_more_columns_than_rows(model):
    X = np.random.default_rng(0).standard_normal((80, 4))
    assert np.allclose(fit_and_predict(model, X, np.full(80, 3.5)), 3.5, atol=1e-5)
    X = np.random.default_rng(0).standard_normal((20, 50))
    # Enough columns to fit every row
    assert np.allclose(fit_and_predict(model, X, X[:, 0]), X[:, 0], atol=1e-6)


def test_what_cannot_be_judged_is_said():
    X = np.random.default_rng(0).standard_normal((20, 50))
    assert (
        LeakScreen(target="number").fit(X, np.ones(20)).verdict_.startswith("The label is constant")
    )
    assert LeakScreen().fit([[0.0], [1.0], [2.0]], ["a", "a", "a"]).get_support().all()
    screen = LeakScreen().fit(X, X[:, 0] + X[:, 1])
    assert screen.get_support().all()
    assert screen.verdict_ == "20 rows of 50 columns are too few to judge. Every column is kept."


@pytest.mark.parametrize("model", REGRESSORS)
@pytest.mark.parametrize("scale", [1e155, 1e-310])
def test_columns_and_labels_out_of_range_are_named(model, scale):
    table = pd.DataFrame(np.random.default_rng(0).standard_normal((60, 3)), columns=list("abc"))
    with pytest.raises(
        ValueError, match=r"column 'b' holds values up to .* squares leave the range"
    ):
        model.fit(table * [1.0, scale, 1.0], table["a"])
    with pytest.raises(ValueError, match="column 'y'"):
        model.fit(table, scale * table["a"])


@pytest.mark.parametrize("scale", [1e99, 1e60, 1e-60])
@pytest.mark.parametrize("model", REGRESSORS)
def test_two_columns_at_the_edge_of_the_range_give_finite_predictions_or_are_named(model, scale):
    table = pd.DataFrame(np.random.default_rng(0).standard_normal((60, 3)), columns=list("abc"))
    y = table.sum(axis=1)
    table[["b", "c"]] *= scale
    assert np.isfinite(fit_and_predict(model, table, y)).all()


@pytest.mark.parametrize("scale", [1e60, 1e99])
def test_dwr_in_its_published_form_says_when_its_loss_overflows(scale):
    X = np.random.default_rng(0).standard_normal((60, 3)) * [1.0, scale, scale]
    with pytest.raises(ValueError, match=r"the weights of DWR diverged; with standardize=True"):
        DWRRegressor(standardize=False).fit(X, X[:, 0])


@pytest.mark.parametrize("model", REGRESSORS)
def test_missing_values_and_words_are_named(model):
    table = pd.DataFrame(
        np.random.default_rng(0).standard_normal((30, 2)), columns=["age", "income"]
    )
    y = [0, 1] * 15
    with pytest.raises(ValueError, match=r"column 'age' contains NaN in 1 of 30 rows\. Impute"):
        model.fit(table.assign(age=[np.nan, *table["age"][1:]]), y)
    with pytest.raises(ValueError, match="column 'income' contains infinity in 1 of 30 rows"):
        model.fit(table.assign(income=[np.inf, *table["income"][1:]]), y)
    for column in (["red", "blue"] * 15, pd.Categorical(["red", "blue"] * 15)):
        with pytest.raises(
            ValueError, match=r"column 'colour' is of type .*, not numeric\. Encode it first"
        ):
            model.fit(table.assign(colour=column), y)
    with pytest.raises(
        ValueError, match=r"column 'day' holds dates or times .* days since the first one"
    ):
        model.fit(table.assign(day=pd.date_range("2020", periods=30)), y)
    with pytest.raises(
        TypeError, match=r"Sparse data was passed for X, but dense data is required"
    ):
        model.fit(csr_array(table.to_numpy()), y)
    model.fit(table, y)
    with pytest.raises(ValueError, match="column 'age' contains NaN"):
        model.predict(table.assign(age=np.nan))


def test_nullable_and_boolean_columns_are_numbers():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.standard_normal(40), "b": rng.integers(9, size=40)})
    table["b"] = table["b"].astype("Int64")
    table["c"] = table["a"] > 0
    assert fit_and_predict(ScreenedRegressor(), table, table["a"]).shape == (40,)


def test_missing_values_are_no_obstacle_where_the_estimator_takes_them():
    """The screen judges with the middle value in a hole's place, sets aside what is mostly missing,
    and hands the holes on.
    """
    data = make_mmads(2000, 10, 1.7, seed=0)
    table = data.frame().drop(columns="y")
    rng = np.random.default_rng(0)
    table["S2"] = table["S2"].where(rng.random(2000) > 0.1)
    table["rare"] = np.where(rng.random(2000) > 0.5, data.y, np.nan)
    screen = LeakScreen().fit(table, data.y)
    assert screen.explain().loc["V1", "decision"] == "follows the label"
    assert screen.explain().loc["rare", "decision"] == "mostly missing"
    assert "Judged on 2000 rows; in " in screen.verdict_
    scores = np.where(
        table["S2"].isna(), 0.0, norm.ppf((table["S2"].rank() - 0.5) / table["S2"].count())
    )
    again = LeakScreen().fit(table.drop(columns="rare").assign(S2=scores), data.y)
    assert np.isclose(screen.explain().loc["S2", "m"], again.explain().loc["S2", "m"], atol=0.02)
    assert np.isnan(screen.transform(table)).any()
    assert LeakScreen().fit(table, data.y, groups=np.arange(2000) % 2).get_support()[:5].all()
    model = make_pipeline(LeakScreen(), HistGradientBoostingRegressor(max_iter=5)).fit(
        table, data.y
    )
    assert np.isfinite(model.predict(table)).all()
    with pytest.raises(ValueError, match="column 'S2' contains infinity"):
        model.predict(table.assign(S2=np.inf))
    nothing = LeakScreen().fit(
        np.where(np.eye(30, 12, dtype=bool), np.nan, 1.0) * rng.random((30, 12)), range(30)
    )
    assert nothing.get_support().all()
    holes = np.where(rng.random((40, 30)) < 0.15, np.nan, rng.random((40, 30)))
    assert "too few to judge" in LeakScreen().fit(holes, rng.random(40)).verdict_


def test_most_leaks_are_found_in_spite_of_holes():
    found = {0.0: 0, 0.1: 0}
    for seed in range(20):
        data = make_mmads(2000, 20, 1.7, seed=seed)
        rng = np.random.default_rng(seed)
        for share in found:
            X = np.where(rng.random(data.X.shape) < share, np.nan, data.X)
            kept = LeakScreen().fit(X, data.y).get_support()
            found[share] += (~kept[data.biased]).sum()
    assert found[0.1] >= 0.9 * found[0.0] > 0


@pytest.fixture(scope="module")
def data():
    return make_mmads(400, 10, 1.7, seed=0)


def in_units(X: np.ndarray, unit: float) -> np.ndarray:
    """Give a cause, a column that follows the label and one that does nothing another unit."""
    return X * [1.0, unit, 1.0, 1.0, 1.0 / unit, unit, 1.0, unit, 1.0, 1.0]


@pytest.mark.parametrize("model", REGRESSORS, ids=repr)
def test_regressors_predict_the_same_in_all_units_of_columns_and_label(model, data):
    expected = fit_and_predict(model, data.X, data.y)
    for unit in UNITS:
        predicted = fit_and_predict(model, in_units(data.X, unit), unit * data.y)
        assert np.allclose(predicted / unit, expected, rtol=1e-4, atol=1e-4), unit


def test_the_screen_does_not_depend_on_units(data):
    screen = LeakScreen().fit(data.X, data.y).explain()
    for unit in UNITS:
        scaled = in_units(data.X, unit)
        found = LeakScreen().fit(scaled, unit * data.y).explain()
        assert found["decision"].equals(screen["decision"])
        assert np.allclose(found[["m", "k", "share"]], screen[["m", "k", "share"]])


def test_a_wide_table_and_a_label_of_many_classes_are_refused_before_they_take_long(monkeypatch):
    """A cube of the columns, or of the classes, would take minutes and many GB."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 800)), rng.standard_normal(60)
    X[:, 5] = 1.0
    X[:, 6] = 2 * y
    monkeypatch.setattr("pfdl.tabular.moments.qr", None)
    screen = LeakScreen().fit(X, y)
    assert screen.explain().loc[["x5", "x6"], "decision"].tolist() == [
        "constant",
        "copy of the label",
    ]
    assert screen.get_support().sum() == 799
    names = [f"name {number}" for number in range(5000)]
    screen = LeakScreen().fit(np.zeros((5000, 1)), names)
    assert screen.verdict_.startswith("The label has more than 300 classes")
