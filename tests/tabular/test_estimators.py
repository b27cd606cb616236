"""The estimators as scikit-learn's users know them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from pfdl.data import make_mmads
from pfdl.decorrelation import FeatureDecomposition
from pfdl.tabular import (
    DWRRegressor,
    LeakScreen,
    PFDLRegressor,
    ScreenedRegressor,
    pfdl as pfdl_module,
)
from pfdl.tabular.screening import AS_ASKED, FOLLOWS_LABEL
from tests.decorrelation.reference import naive_decomposition, naive_decomposition_loss


@pytest.mark.parametrize(
    "estimator",
    [PFDLRegressor(max_iter=3), LeakScreen(), ScreenedRegressor(), DWRRegressor(max_iter=20)],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore::pfdl.tabular.weights.EffectiveSampleSizeWarning")
@pytest.mark.usefixtures("nothing_counted")  # most lines that run are scikit-learn's
def test_scikit_learn_compatibility(estimator):
    results = check_estimator(estimator, on_skip=None, on_fail=None)
    failed = {
        result["check_name"]: result["exception"]
        for result in results
        if result["status"] == "failed"
    }
    assert failed == {}
    assert sum(result["status"] == "passed" for result in results) > 40


@pytest.fixture(scope="module")
def data():
    return make_mmads(1000, 10, 1.7, seed=0)


OTHERS = ["V2", "V3", "V4", "V5"]


def followers(screen):
    return np.flatnonzero(screen.screening_.decision == FOLLOWS_LABEL).tolist()


def test_pandas_in_names_out_and_the_reasons(data):
    frame = data.frame().drop(columns="y")
    model = ScreenedRegressor().fit(frame, data.y)
    assert model.feature_names_in_.tolist() == data.feature_names
    assert model.screen_.get_feature_names_out().tolist() == [*data.feature_names[:5], *OTHERS]
    why = model.explain()
    assert isinstance(why, pd.DataFrame)
    assert why.loc["V1", "decision"] == FOLLOWS_LABEL
    assert why.loc["V1", "ratio"] == pytest.approx(why.loc["V1", "k"] / why.loc["V1", "m"])
    assert why.loc["V1", "share"] > 0.9
    assert (why.loc["S1":"S5", "share"] < 0.5).all()
    assert model.verdict_.startswith("Behaving like an effect of the label: V1.")
    kept = np.delete(data.X, 5, axis=1)
    plain = LinearRegression().fit(kept, data.y)
    assert np.allclose(np.delete(model.coef_, 5), plain.coef_)
    assert model.coef_[5] == 0.0
    assert np.allclose(model.predict(frame), plain.predict(kept))


def test_plot_shows_m_and_k_of_every_column(data):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    table = data.frame().drop(columns="y").rename(columns={"S1": "$\\bad{$", "S2": "\x1b[2J"})
    model = LeakScreen().fit(table, data.y)
    axes = model.plot()
    why = model.explain()
    axes.figure.draw_without_rendering()
    assert why.index[0] == "V1"
    shown = [
        name if name.isprintable() else name.encode("unicode_escape").decode() for name in why.index
    ]
    assert [text.get_text() for text in axes.texts] == ["V1 (strong)", *shown[1:]]
    drawn = {(m, k) for line in axes.get_lines() for m, k in zip(*line.get_data(), strict=True)}
    assert set(zip(why["m"], why["k"], strict=True)) <= drawn
    _, given = plt.subplots()
    assert model.plot(given) is given
    plt.close("all")


def test_the_screen_stands_in_front_of_any_estimator(data):
    frame = data.frame().drop(columns="y")
    pipeline = make_pipeline(
        LeakScreen(), HistGradientBoostingRegressor(max_iter=5, random_state=0)
    )
    pipeline.fit(frame, data.y)
    assert pipeline[:-1].get_feature_names_out().tolist() == [*data.feature_names[:5], *OTHERS]
    kept = np.delete(data.X, 5, axis=1)
    alone = HistGradientBoostingRegressor(max_iter=5, random_state=0).fit(kept, data.y)
    assert np.array_equal(pipeline.predict(frame), alone.predict(kept))


def test_what_is_to_be_kept_is_kept(data):
    frame = data.frame().drop(columns="y")
    trusted = LeakScreen(keep="V1").fit(frame, data.y)
    assert followers(trusted) == []
    assert trusted.verdict_.startswith(
        "Behaving like an effect of the label, but kept as asked: V1."
    )
    assert trusted.suspects_.loc["V1", ["grade", "decision"]].tolist() == ["strong", AS_ASKED]
    assert followers(LeakScreen(keep=[5]).fit(data.X, data.y)) == []
    kept = LeakScreen(keep=["V3"]).fit(frame, data.y)
    assert followers(kept) == [5]
    assert "V3" in kept.get_feature_names_out()
    for unknown in ("W", 10, True):  # a mask would be taken for the columns 0 and 1
        with pytest.raises(ValueError, match=f"keep holds {unknown!r}; give names of columns of X"):
            LeakScreen(keep=[unknown]).fit(frame, data.y)


def test_weights_count_and_rows_without_weight_do_not(data):
    other = make_mmads(1000, 10, 1 + 1e-9, seed=1)
    X = np.vstack([data.X, other.X])
    y = np.append(data.y, other.y)
    weight = np.repeat([1.0, 0.0], 1000)
    alone, weighted = (
        ScreenedRegressor().fit(data.X, data.y),
        ScreenedRegressor().fit(X, y, sample_weight=weight),
    )
    assert np.array_equal(weighted.kept_, alone.kept_)
    assert np.allclose(weighted.coef_, alone.coef_)
    scaled = LeakScreen().fit(data.X, data.y, sample_weight=np.full(1000, 7.0))
    assert np.allclose(scaled.explain()["m"], alone.explain()["m"])


def test_pipeline_grid_search_and_cross_validation(data):
    search = GridSearchCV(
        make_pipeline(StandardScaler(), ScreenedRegressor(screen=LeakScreen())),
        {"screenedregressor__screen__drop": ["sure", "strong"]},
        cv=2,
    ).fit(data.X, data.y)
    assert set(search.cv_results_["param_screenedregressor__screen__drop"]) == {"sure", "strong"}
    assert cross_val_score(DWRRegressor(max_iter=5), data.X, data.y, cv=2).shape == (2,)


def test_pfdl_feeds_the_decomposition_into_least_squares(data):
    model = PFDLRegressor(max_iter=50, random_state=0).fit(data.X, data.y)
    assert (model.learning_rate, PFDLRegressor().max_iter) == (0.001, 5000)
    assert model.decomposition_.sharing == "strict"
    scaled = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    with torch.no_grad():
        auxiliary = model.decomposition_(torch.from_numpy(scaled)).numpy()
    expected = LinearRegression().fit(np.hstack([data.X, auxiliary]), data.y)
    assert np.allclose(model.coef_, expected.coef_[:10])
    assert np.allclose(model.auxiliary_coef_, expected.coef_[10:])
    assert np.allclose(model.predict(data.X), expected.predict(np.hstack([data.X, auxiliary])))


@pytest.mark.parametrize("hidden", [(8,), (8, 4)])
def test_pfdl_trains_g_on_all_rows_by_the_loss_of_the_paper(data, hidden):
    """One full-batch step, against the same step written out."""
    model = PFDLRegressor(
        max_iter=1, batch_size=None, learning_rate=0.5, hidden=hidden, random_state=3
    )
    model.fit(data.X, data.y)
    seed = int(np.random.RandomState(3).randint(2**31 - 1))
    torch.manual_seed(seed)
    g = FeatureDecomposition(10, hidden, sharing="strict")
    U = torch.from_numpy(((data.X - data.X.mean(axis=0)) / data.X.std(axis=0)).astype(np.float32))
    loss = ((U - g(U)) ** 2).mean()
    loss.backward()
    torch.optim.Adam(g.parameters(), lr=0.5).step()
    for ours, expected in zip(model.decomposition_.parameters(), g.parameters(), strict=True):
        assert torch.allclose(ours.float(), expected, atol=1e-6)
    assert model.loss_ == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize(("p", "hidden"), [(2, 3), (7, 5)])
def test_the_gradients_in_closed_form_are_those_of_the_definition(p, hidden):
    torch.manual_seed(0)
    g = FeatureDecomposition(p, hidden, sharing="strict").double()
    features = torch.randn(11, p, dtype=torch.float64)
    expected = naive_decomposition_loss(features, naive_decomposition(g, features))
    gradients = torch.autograd.grad(expected, list(g.parameters()))
    for _ in range(2):  # a second call replaces the gradients of the first
        loss = pfdl_module._set_gradients(g, features)
    assert float(loss) == pytest.approx(expected.item(), rel=1e-12)
    for parameter, gradient in zip(g.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-10, atol=1e-14)


def test_pfdl_with_one_column_is_least_squares(data):
    model = PFDLRegressor(max_iter=1).fit(data.X[:, :1], data.y)
    assert model.decomposition_ is None
    assert np.allclose(model.coef_, LinearRegression().fit(data.X[:, :1], data.y).coef_)


@pytest.mark.parametrize(
    ("estimator", "wrong"),
    [
        (LeakScreen, {"target": "label", "drop": "all"}),
        (PFDLRegressor, {"learning_rate": 0, "batch_size": 0, "max_iter": 0}),
        (DWRRegressor, {"solver": "sgd", "max_iter": 0, "tol": -1}),
    ],
)
def test_parameters_are_stored_as_given_and_checked_in_fit(estimator, wrong, data):
    for name, value in wrong.items():
        with pytest.raises(
            ValueError, match=rf"'{name}' parameter of .* must be .* Got {value!r} instead"
        ):
            estimator(**{name: value}).fit(data.X, data.y)


@pytest.mark.parametrize("model", [PFDLRegressor(), DWRRegressor()], ids=repr)
def test_weights_are_refused_in_words(model, data):
    with pytest.raises(TypeError, match="Regressor takes no sample_weight: every row counts"):
        model.fit(data.X, data.y, sample_weight=np.ones(1000))


def test_unfitted_models_say_so():
    for model in (LeakScreen(), ScreenedRegressor()):
        with pytest.raises(NotFittedError):
            model.explain()


def biased_classes(seed: int, n: int, follows: bool) -> tuple[np.ndarray, np.ndarray]:
    """Classes caused by five columns; a sixth agrees with the class in the rows that were kept, or
    in none.
    """
    rng = np.random.default_rng(seed)
    S, V = rng.standard_normal((40 * n, 5)), rng.standard_normal((40 * n, 3))
    y = np.where(S @ [1, -1, 1.5, 1, -1] + 0.3 * rng.standard_normal(40 * n) > 0, 1.0, -1.0)
    kept = (
        rng.random(40 * n) < np.exp(-2.5 * np.abs(y - V[:, 0]))
        if follows
        else np.arange(40 * n) < n
    )
    return np.hstack([S, V])[kept][:n], y[kept][:n]


def test_a_classifier_behind_the_screen_does_without_the_column_that_follows_the_class():
    for seed in range(3):
        X, y = biased_classes(seed, 3000, follows=True)
        model = make_pipeline(LeakScreen(), LogisticRegression()).fit(X, y)
        assert followers(model[0]) == [5]
        assert model[0].get_support()[:5].all()
        turned = X.copy()
        turned[:, 5] *= -1
        assert model.score(turned, y) == model.score(X, y) > 0.9
        assert LogisticRegression().fit(X, y).score(turned, y) < model.score(turned, y)
    X, y = biased_classes(0, 3000, follows=False)
    assert LeakScreen().fit(X, y).get_support().all()


@pytest.mark.usefixtures("children_uncounted")
def test_tables_and_their_diagnosis_do_without_torch(tmp_path):
    code = (
        "import sys, pfdl.cli.main, sklearn.datasets, pfdl.tabular\n"
        "X, y = sklearn.datasets.load_diabetes(return_X_y=True, as_frame=True)\n"
        "pfdl.tabular.ScreenedRegressor().fit(X, y); X.to_csv('X.csv', index=False)\n"
        "pfdl.cli.main.app(['diagnose', 'X.csv', '--target', 'bmi'], standalone_mode=False)\n"
        "print('torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert result.stdout.splitlines()[-2:] == ["diagnosis.html", "False"]


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
