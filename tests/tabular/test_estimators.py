"""The estimators as scikit-learn's users know them."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from pfdl.data import make_mmads
from pfdl.tabular import DWRRegressor, PFDLClassifier, PFDLRegressor, SRDORegressor
from pfdl.tabular.metrics import rmse
from pfdl.tabular.selection import FOLLOWS_LABEL


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@parametrize_with_checks(
    [
        PFDLRegressor(),
        PFDLRegressor(auxiliary=True),
        PFDLRegressor(decomposition="network", max_steps=3),
        PFDLRegressor("paper", max_steps=3),
        DWRRegressor(max_iter=20),
        SRDORegressor(classifier=LogisticRegression()),
        PFDLClassifier(),
    ]
)
def test_scikit_learn_compatibility(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    return make_mmads(1000, 10, 1.7, seed=0)


def test_pandas_in_names_out_and_the_reasons(data):
    frame = data.frame().drop(columns="y")
    model = PFDLRegressor().fit(frame, data.y)
    assert model.feature_names_in_.tolist() == data.feature_names
    assert model.get_feature_names_out().tolist() == ["S1", "S2", "S3", "S4", "S5"]
    why = model.explain()
    assert isinstance(why, pd.DataFrame)
    assert why.columns.tolist() == ["m", "k", "ratio", "share", "relevance", "decision"]
    assert why.loc["V1", "decision"] == FOLLOWS_LABEL
    assert why.loc["V1", "ratio"] == pytest.approx(why.loc["V1", "k"] / why.loc["V1", "m"])
    assert why.loc["V1", "share"] > 0.9
    assert (why.loc["S1":"S5", "share"] < 0.5).all()
    assert "left out" in model.verdict_
    plain = LinearRegression().fit(data.X[:, :5], data.y)
    assert np.allclose(model.coef_[:5], plain.coef_)
    assert np.allclose(model.predict(frame), plain.predict(data.X[:, :5]))


def test_plot_shows_m_and_k_of_every_column(data):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    model = PFDLRegressor().fit(data.frame().drop(columns="y"), data.y)
    axes = model.plot_explanation()
    assert [label.get_text() for label in axes.get_yticklabels()] == data.feature_names
    drawn = {float(x) for line in axes.get_lines() for x in line.get_xdata()}
    assert set(model.explain()["m"]) | set(model.explain()["k"]) <= drawn
    _, given = plt.subplots()
    assert model.plot_explanation(given) is given
    plt.close("all")


def test_pipeline_grid_search_clone_and_pickle(data):
    search = GridSearchCV(
        make_pipeline(StandardScaler(), PFDLRegressor()),
        {"pfdlregressor__mode": ["selection", "paper"], "pfdlregressor__max_steps": [2]},
        cv=2,
    ).fit(data.X, data.y)
    assert set(search.cv_results_["param_pfdlregressor__mode"]) == {"selection", "paper"}
    for model in (PFDLRegressor("paper", max_steps=5, random_state=0), PFDLRegressor(auxiliary=True, random_state=0)):
        fitted = clone(model).fit(data.X, data.y)
        assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict(data.X), fitted.predict(data.X))
        assert np.array_equal(clone(fitted).fit(data.X, data.y).predict(data.X), fitted.predict(data.X))
    assert cross_val_score(DWRRegressor(max_iter=5), data.X, data.y, cv=2).shape == (2,)


def test_paper_mode_feeds_the_decomposition_into_least_squares(data):
    model = PFDLRegressor("paper", max_steps=50, random_state=0).fit(data.X, data.y)
    assert model.decomposition_.sharing == "strict"
    scaled = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    with torch.no_grad():
        auxiliary = model.decomposition_(torch.from_numpy(scaled)).numpy()
    expected = LinearRegression().fit(np.hstack([data.X, auxiliary]), data.y)
    assert np.allclose(model.coef_, expected.coef_[:10])
    assert np.allclose(model.predict(data.X), expected.predict(np.hstack([data.X, auxiliary])))
    with pytest.raises(AttributeError, match="mode='paper' does not screen"):
        model.explain()


def test_refitting_in_another_mode_leaves_nothing_behind(data):
    model = PFDLRegressor("paper", max_steps=2).fit(data.X, data.y)
    model.set_params(mode="selection").fit(data.X, data.y)
    assert np.array_equal(model.predict(data.X), PFDLRegressor().fit(data.X, data.y).predict(data.X))


def test_auxiliary_prediction_helps_where_y_is_not_linear_and_leaves_coefficients_alone(data):
    plain = PFDLRegressor().fit(data.X, data.y)
    model = PFDLRegressor(auxiliary=True, random_state=0).fit(data.X, data.y)
    assert np.array_equal(model.coef_, plain.coef_)
    test = make_mmads(4000, 10, -1.7, seed=1)
    assert rmse(test.y, model.predict(test.X)) < rmse(test.y, plain.predict(test.X))
    # What was dropped is not looked at.
    blind = test.X.copy()
    blind[:, data.biased] = 100.0
    assert np.array_equal(model.predict(blind), model.predict(test.X))


def test_two_followers_in_the_auxiliary_prediction():
    data = make_mmads(1000, 20, 1.7, seed=0)
    model = PFDLRegressor(auxiliary=True, random_state=0).fit(data.X, data.y)
    assert (model.screening_.decision == FOLLOWS_LABEL).sum() == 2
    assert model.predict(data.X).shape == (1000,)


def test_without_intercept(data):
    model = PFDLRegressor(fit_intercept=False).fit(data.X, data.y)
    assert model.intercept_ == 0.0
    assert np.allclose(model.coef_[:5], np.linalg.lstsq(data.X[:, :5], data.y, rcond=None)[0])


def test_default_beats_every_rival_where_the_bias_turns(data):
    test = make_mmads(4000, 10, -1.7, seed=1)
    rivals = [LinearRegression(), DWRRegressor(max_iter=1500), SRDORegressor(random_state=0)]
    ours = rmse(test.y, PFDLRegressor().fit(data.X, data.y).predict(test.X))
    for rival in rivals:
        assert ours < rmse(test.y, rival.fit(data.X, data.y).predict(test.X)) - 0.05


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mode": "label"}, "mode is 'label'; choose 'selection' or 'paper'"),
        ({"decomposition": "tree"}, "decomposition is 'tree'"),
        ({"alpha": 0.0}, "alpha is 0.0; it must lie strictly between 0 and 1"),
        ({"share_threshold": 1.5}, "share_threshold is 1.5"),
        ({"ratio_threshold": -1}, "ratio_threshold is -1"),
        ({"learning_rate": 0}, "learning_rate is 0; it must be positive"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"max_steps": 0}, "max_steps is 0"),
    ],
)
def test_parameters_are_stored_as_given_and_checked_in_fit(parameters, message, data):
    model = PFDLRegressor(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(data.X, data.y)


def test_unfitted_models_say_so():
    with pytest.raises(NotFittedError):
        PFDLRegressor().explain()


def biased_classes(seed: int, n: int, follows: bool) -> tuple[np.ndarray, np.ndarray]:
    """Classes caused by five columns; a sixth agrees with the class in the rows that were kept, or in none."""
    rng = np.random.default_rng(seed)
    S, V = rng.standard_normal((40 * n, 5)), rng.standard_normal((40 * n, 3))
    y = np.where(S @ [1, -1, 1.5, 1, -1] + 0.3 * rng.standard_normal(40 * n) > 0, 1.0, -1.0)
    kept = rng.random(40 * n) < np.exp(-2.5 * np.abs(y - V[:, 0])) if follows else np.arange(40 * n) < n
    return np.hstack([S, V])[kept][:n], y[kept][:n]


def test_classifier_leaves_out_the_column_that_follows_the_class():
    for seed in range(3):
        X, y = biased_classes(seed, 3000, follows=True)
        model = PFDLClassifier().fit(X, y)
        assert np.flatnonzero(model.screening_.decision == FOLLOWS_LABEL).tolist() == [5]
        assert model.kept_[:5].all()
        assert model.predict_proba(X).shape == (3000, 2)
        turned = X.copy()
        turned[:, 5] *= -1
        assert model.score(turned, y) == model.score(X, y) > 0.9
        assert LogisticRegression().fit(X, y).score(turned, y) < model.score(turned, y)


def test_classifier_without_selection_is_the_plain_classifier():
    X, y = biased_classes(0, 3000, follows=False)
    model = PFDLClassifier(DecisionTreeClassifier(max_depth=3, random_state=0)).fit(X, y)
    assert model.kept_.all()
    assert np.array_equal(model.predict(X), DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y).predict(X))


def test_classifier_needs_two_classes_and_stands_constant_columns():
    with pytest.raises(ValueError, match=r"one class only, 1"):
        PFDLClassifier().fit([[0.0], [1.0]], [1, 1])
    assert PFDLClassifier().fit(np.ones((6, 2)), ["a", "a", "a", "a", "b", "b"]).predict(np.ones((1, 2))) == ["a"]
