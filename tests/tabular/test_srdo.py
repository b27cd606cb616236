"""SRDO, and what SRDO and SVI have in common with the estimators of the library."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import check_estimator

from pfdl.data import make_mmads
from pfdl.tabular.srdo import SRDORegressor
from pfdl.tabular.svi import SVIRegressor
from pfdl.tabular.weights import EffectiveSampleSizeWarning


@pytest.mark.parametrize(
    "estimator", [SRDORegressor(classifier=LogisticRegression()), SVIRegressor(rounds=1, gate_steps=20)], ids=repr
)
@pytest.mark.filterwarnings("ignore::pfdl.tabular.weights.EffectiveSampleSizeWarning")
def test_scikit_learn_compatibility(estimator):
    results = check_estimator(estimator, on_skip=None, on_fail=None)
    assert {one["check_name"]: one["exception"] for one in results if one["status"] == "failed"} == {}


@pytest.mark.filterwarnings("ignore::pfdl.tabular.weights.EffectiveSampleSizeWarning")
@pytest.mark.parametrize(
    "model", [SRDORegressor(random_state=0), SVIRegressor(rounds=2, gate_steps=300, random_state=0)], ids=repr
)
def test_predictions_do_not_depend_on_units(model):
    data = make_mmads(400, 10, 1.7, seed=0)
    expected = model.fit(data.X, data.y).predict(data.X)
    for unit in (1e-8, 1e8):
        scaled = data.X * [1.0, unit, 1.0, 1.0, 1.0 / unit, unit, 1.0, unit, 1.0, 1.0]
        assert np.allclose(model.fit(scaled, data.y).predict(scaled), expected, rtol=1e-4, atol=1e-4), unit


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (SVIRegressor(rounds=0), "rounds is 0; it must be at least 1"),
        (SVIRegressor(penalty=-1), "penalty is -1; it must not be negative"),
    ],
)
def test_parameters_are_checked_in_fit(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit([[0.0], [1.0]], [0.0, 1.0])


def test_few_effective_rows_are_warned_of():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 1)) + 0.05 * rng.standard_normal((300, 12))

    class Certain(LogisticRegression):
        def predict_proba(self, X):
            probability = super().predict_proba(X)
            probability[:, 1] = np.where(np.arange(len(X)) == 0, 1.0, 1e-6)
            return probability

    with pytest.warns(EffectiveSampleSizeWarning, match="the weights of SRDO are worth 1 of 300 rows"):
        SRDORegressor(classifier=Certain(), random_state=0).fit(X, X[:, 0])


def test_srdo_weights_are_the_density_ratio():
    """Two standard normals with correlation ρ: the ratio of the shuffled to the real density is known."""
    rng = np.random.default_rng(0)
    rho = 0.6
    X = rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], size=8000)
    # Its logarithm is a quadratic form, which this classifier can represent.
    classifier = make_pipeline(PolynomialFeatures(2), LogisticRegression(C=100))
    model = SRDORegressor(classifier=classifier, random_state=0).fit(X, X[:, 0])
    exponent = (rho**2 * (X**2).sum(axis=1) - 2 * rho * X[:, 0] * X[:, 1]) / (2 * (1 - rho**2))
    assert np.corrcoef(np.log(model.sample_weight_), exponent)[0, 1] > 0.98
    weighted = np.cov(X.T, aweights=model.sample_weight_)
    assert abs(weighted[0, 1]) / np.sqrt(weighted[0, 0] * weighted[1, 1]) < 0.15
    assert np.allclose(model.coef_, [1, 0], atol=1e-8)


def test_srdo_decorrelates_with_its_own_classifier():
    X = np.random.default_rng(0).multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=2000)
    model = SRDORegressor(random_state=0).fit(X, X[:, 0])
    weighted = np.cov(X.T, aweights=model.sample_weight_)
    assert abs(weighted[0, 1]) / np.sqrt(weighted[0, 0] * weighted[1, 1]) < 0.4
    assert model.effective_sample_size_ == pytest.approx(2000**2 / (model.sample_weight_**2).sum())


def test_srdo_takes_any_classifier():
    X = np.random.default_rng(0).standard_normal((50, 2))
    model = SRDORegressor(classifier=LogisticRegression(), random_state=0).fit(X, X[:, 0])
    assert isinstance(model.classifier_, LogisticRegression)
    # A linear classifier cannot see that the columns were shuffled apart: all rows weigh the same.
    assert model.effective_sample_size_ > 45
