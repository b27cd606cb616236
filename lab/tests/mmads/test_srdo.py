"""SRDO against a density ratio that is known."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import check_estimator

from pfdl_lab.mmads.srdo import SRDORegressor


def test_srdo_weights_are_the_density_ratio():
    """Two standard normals with correlation ρ: the ratio of the shuffled to the real density is
    known.
    """
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


@pytest.mark.filterwarnings("ignore::pfdl.tabular.weights.EffectiveSampleSizeWarning")
def test_scikit_learn_compatibility():
    results = check_estimator(
        SRDORegressor(classifier=LogisticRegression()), on_skip=None, on_fail=None
    )
    assert [result["check_name"] for result in results if result["status"] == "failed"] == []
