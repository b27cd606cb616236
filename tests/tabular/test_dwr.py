from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from pfdl.data import make_mmads
from pfdl.tabular import DWRRegressor, SRDORegressor
from pfdl.tabular.dwr import decorrelation_loss_and_gradient, effective_sample_size
from pfdl.tabular.metrics import beta_error
from tests.tabular.reference import dwr_loss_with_copies


def test_loss_and_gradient_equal_the_published_form():
    rng = np.random.default_rng(0)
    X, weight = rng.standard_normal((40, 6)) @ rng.standard_normal((6, 6)) + 1.0, rng.random(40) * 2
    expected_weight = torch.tensor(weight, requires_grad=True)
    expected = dwr_loss_with_copies(torch.tensor(X), expected_weight)
    expected.backward()
    loss, gradient = decorrelation_loss_and_gradient(X, weight)
    assert loss == pytest.approx(expected.item(), rel=1e-12)
    assert np.allclose(gradient, expected_weight.grad.numpy(), rtol=1e-9)


def test_weights_decorrelate_and_the_second_stage_is_weighted_least_squares():
    data = make_mmads(400, 10, 1.7, seed=0)
    model = DWRRegressor(max_iter=1500).fit(data.X, data.y)
    weight = model.sample_weight_
    assert weight.mean() == pytest.approx(1.0)
    assert (weight >= 0).all()

    def off_diagonal(weights: np.ndarray) -> float:
        covariance = np.cov(data.X.T, aweights=weights)
        return float(np.abs(covariance - np.diag(np.diag(covariance))).max())

    assert off_diagonal(weight) < off_diagonal(np.ones(400)) / 3
    design = np.column_stack([data.X, np.ones(400)])
    solution = np.linalg.solve(design.T @ (design * weight[:, None]), design.T @ (weight * data.y))
    assert np.allclose(np.append(model.coef_, model.intercept_), solution)
    assert model.effective_sample_size_ == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
    assert model.effective_sample_size_ < 400


def test_stops_when_the_loss_rests():
    X = np.random.default_rng(0).standard_normal((30, 3))
    assert DWRRegressor(tol=1e6).fit(X, X[:, 0]).n_iter_ == 2
    assert DWRRegressor(max_iter=7).fit(X, X[:, 0]).n_iter_ == 7


def test_reproduces_the_paper_better_than_ordinary_least_squares():
    """At (1000, 10, 1.7) the calibrated β_V error is .070 ± .012 against .101 ± .007 of OLS (ten seeds)."""
    errors = {DWRRegressor: [], LinearRegression: []}
    for seed in range(3):
        data = make_mmads(1000, 10, 1.7, seed=seed)
        for method, found in errors.items():
            found.append(beta_error(np.zeros(5), method().fit(data.X, data.y).coef_[data.unstable]))
    assert np.mean(errors[DWRRegressor]) == pytest.approx(0.070, abs=0.025)
    assert np.mean(errors[LinearRegression]) == pytest.approx(0.101, abs=0.015)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"learning_rate": 0}, "learning_rate is 0"), ({"max_iter": 0}, "max_iter is 0"), ({"tol": -1}, "tol is -1")],
)
def test_parameters_are_checked_in_fit(parameters, message):
    with pytest.raises(ValueError, match=message):
        DWRRegressor(**parameters).fit([[0.0], [1.0]], [0.0, 1.0])


def test_effective_sample_size_counts_equal_rows():
    assert effective_sample_size(np.ones(8)) == 8
    assert effective_sample_size(np.array([1.0, 1.0, 0.0, 0.0])) == 2


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
