"""Metadata, frames and names on their way through scikit-learn's pipelines."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from pfdl.data import make_mmads
from pfdl.tabular import LeakScreen, ScreenedRegressor


class Witness(RegressorMixin, BaseEstimator):
    """A regressor that remembers what it was given."""

    def fit(self, X, y, sample_weight=None):
        self.weight_ = sample_weight
        return self

    def predict(self, X):
        return np.zeros(len(X))


@pytest.fixture(scope="module")
def data():
    return make_mmads(400, 10, 1.7, seed=0)


@pytest.fixture
def polars():
    return pytest.importorskip("polars", reason="polars is not installed")


@sklearn.config_context(enable_metadata_routing=True)
def test_cross_validation_cuts_groups_and_weights_to_the_rows_of_the_fold(data):
    weight = np.random.default_rng(0).uniform(0.5, 1.5, size=400)
    model = make_pipeline(
        LeakScreen().set_fit_request(groups=True, sample_weight=True),
        Witness().set_fit_request(sample_weight=True),
    )
    found = cross_validate(
        model,
        data.X,
        data.y,
        params={"groups": np.arange(400) % 4, "sample_weight": weight},
        scoring=get_scorer("r2").set_score_request(sample_weight=True),
        cv=GroupKFold(4),
        return_estimator=True,
        return_indices=True,
    )
    assert np.isfinite(found["test_score"]).all()
    for fitted, rows in zip(found["estimator"], found["indices"]["train"], strict=True):
        assert np.array_equal(fitted[-1].weight_, weight[rows])
        assert len(fitted[0].screening_.environments.names) == 3  # one environment is the test fold


def test_names_behind_a_column_transformer_are_those_of_the_user(data):
    colour = np.random.default_rng(0).choice(["blue", "green", "red"], size=len(data.y))
    table = data.frame().drop(columns="y").assign(colour=colour)
    encoder = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["colour"]),
        remainder="passthrough",
        verbose_feature_names_out=False,
    )
    pipeline = (
        make_pipeline(encoder, ScreenedRegressor())
        .set_output(transform="pandas")
        .fit(table, data.y)
    )
    why = pipeline[-1].explain()
    assert why.index[:4].tolist() == ["V1", "colour_blue", "colour_green", "colour_red"]
    assert why.loc["V1", "decision"] == "follows the label"
    assert pipeline[-1].verdict_.startswith("Behaving like an effect of the label: V1.")
    assert pipeline.predict(table).shape == (400,)


def test_polars_in_and_out(polars, data):
    table = polars.from_dict({name: data.X[:, j] for j, name in enumerate(data.feature_names)})
    y, weight = polars.Series("y", data.y), polars.Series("w", np.full(400, 2.0))
    model = ScreenedRegressor().fit(
        table, y, sample_weight=weight, groups=polars.Series(["a", "b"] * 200)
    )
    assert model.feature_names_in_.tolist() == data.feature_names
    assert "effect of the label: V1." in model.verdict_
    assert np.allclose(
        model.predict(table), ScreenedRegressor().fit(data.X, data.y).predict(data.X)
    )
    screen = LeakScreen().set_output(transform="polars").fit(table, y)
    assert isinstance(screen.transform(table), polars.DataFrame)
    assert screen.transform(table).columns == screen.get_feature_names_out().tolist()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (["red", "blue"] * 200, r"column 'odd' is of type String, not numeric\. Encode it first"),
        ([None, 1] * 200, "column 'odd' contains NaN in 200 of 400 rows"),
        ([None, 1.5] * 200, "column 'odd' contains NaN in 200 of 400 rows"),
        ([date(2020, 1, 1)] * 400, r"column 'odd' holds dates or times \(Date\)"),
        ([float("inf"), 1.5] * 200, "column 'odd' contains infinity in 200 of 400 rows"),
    ],
)
def test_what_polars_frames_must_not_hold_is_named(polars, data, values, sentence):
    table = polars.DataFrame({"S1": data.X[:, 0], "odd": values})
    with pytest.raises(ValueError, match=sentence):
        ScreenedRegressor().fit(table, data.y)


def test_polars_numbers_of_every_kind_are_numbers(polars, data):
    rng = np.random.default_rng(0)
    table = polars.DataFrame(
        {
            "flag": rng.random(400) > 0.5,
            "count": polars.Series(rng.integers(9, size=400), dtype=polars.UInt8),
            "single": polars.Series(data.X[:, 0], dtype=polars.Float32),
        }
    )
    model = make_pipeline(LeakScreen(), LogisticRegression()).fit(table, polars.Series(data.y > 0))
    assert model[0].get_support().all()
    assert model.predict(table).shape == (400,)
