"""SVI against its published code, and its fast forms against plain ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import check_estimator

from pfdl.data import make_mmads
from pfdl.tabular.moments import standardised
from pfdl_lab.mmads.svi import (
    SVIRegressor,
    _loss_and_gradient,
    decorrelating_weights,
    gate_probabilities,
)

# What github.com/h-yu16/Sparse_Variable_Independence at 59f77b6 (exp_svi.py with its defaults:
# 20,000 steps for the weights, λ = 3, σ = 0.1) chooses on our tables: by rounds and table the mask
# of the columns, S first, and the effective number of rows of its last weights. One round (SVI^d)
# depends on the weights found more than ten do.
PUBLISHED = {
    (10, 2000, 10, "independent", 0): ([1, 1, 1, 1, 1, 1, 0, 0, 0, 0], 1967),
    (10, 2000, 10, "independent", 1): ([1, 1, 1, 1, 1, 1, 0, 0, 0, 0], 1961),
    (10, 1000, 10, "s_to_v", 0): ([1, 1, 1, 1, 1, 1, 0, 0, 0, 0], 325),
    (10, 1000, 10, "v_to_s", 0): ([1, 1, 1, 1, 1, 1, 0, 0, 0, 0], 319),
    (10, 2000, 20, "independent", 0): ([1] * 12 + [0] * 8, 1128),
    (1, 1000, 10, "s_to_v", 0): ([1, 1, 1, 1, 1, 0, 0, 0, 0, 0], 105),
    (1, 1000, 10, "independent", 1): ([1, 1, 1, 1, 1, 0, 0, 0, 1, 0], 161),
    (1, 1000, 10, "v_to_s", 0): ([1, 0, 1, 1, 1, 1, 0, 1, 0, 0], 90),
}


@pytest.mark.usefixtures("nothing_counted")
@pytest.mark.parametrize(("rounds", "n", "p", "setting", "seed"), PUBLISHED)
def test_chooses_the_columns_that_the_published_code_chooses(rounds, n, p, setting, seed):
    chosen, rows = PUBLISHED[rounds, n, p, setting, seed]
    data = make_mmads(n, p, 1.7, setting, seed=seed)
    model = SVIRegressor(rounds=rounds, random_state=0).fit(data.X, data.y)
    assert model.kept_.astype(int).tolist() == chosen
    assert model.effective_sample_size_ == pytest.approx(rows, rel=0.15)
    plain = LinearRegression().fit(data.X[:, model.kept_], data.y)
    assert np.allclose(model.coef_[model.kept_], plain.coef_)
    assert (model.coef_[~model.kept_] == 0).all()


def plain_loss(root, X, pairs):
    n, p = X.shape
    w = root**2
    lengths = []
    for j in range(p):
        squares = 0.0
        for k in set(range(p)) - {j}:
            covariance = (w * X[:, j] * X[:, k]).sum() / n - (w * X[:, j]).sum() * (
                w * X[:, k]
            ).sum() / n**2
            squares += pairs[j, k] * covariance**2
        lengths.append(np.sqrt(squares + 1e-10))
    return 2000 / p * sum(lengths) + 0.5 * (w.sum() - n) ** 2 + 0.00005 * (w**2).sum()


def test_the_loss_of_the_weights_is_the_published_one_with_its_gradient():
    rng = np.random.default_rng(0)
    X, root, chance = rng.standard_normal((30, 4)), rng.uniform(0.5, 1.5, 30), rng.random(4)
    pairs = 1 - np.outer(chance, chance)
    assert _loss_and_gradient(root, X, pairs)[0] == pytest.approx(plain_loss(root, X, pairs))
    error = check_grad(
        lambda r: _loss_and_gradient(r, X, pairs)[0],
        lambda r: _loss_and_gradient(r, X, pairs)[1],
        root,
    )
    assert error < 1e-2 * np.linalg.norm(_loss_and_gradient(root, X, pairs)[1])


def test_weights_decorrelate_only_the_pairs_that_are_asked_for():
    data = make_mmads(1000, 10, 1.7, seed=0)
    X = standardised(data.X)

    def covariance(weight):
        centred = X - weight @ X / weight.sum()
        found = np.abs(centred.T @ (centred * weight[:, None]) / weight.sum())
        return found - np.diag(np.diag(found))

    everywhere = decorrelating_weights(X, np.ones((10, 10)))
    assert covariance(everywhere).max() < 0.1 * covariance(np.ones(1000)).max()
    assert np.allclose(decorrelating_weights(X, np.zeros((10, 10))), 1.0, atol=1e-3)


def test_gates_close_on_columns_without_use():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 3))
    y = X[:, 0] + 0.1 * rng.standard_normal(500)
    chance = gate_probabilities(X, y / y.std(), np.ones(500), penalty=4.5, steps=5000, rng=rng)
    assert chance[0] > 0.9
    assert (chance[1:] < 0.1).all()
    assert (
        gate_probabilities(X, y / y.std(), np.ones(500), penalty=0.0, steps=10, rng=rng).min() > 0.9
    )


@pytest.mark.usefixtures("nothing_counted")  # most lines that run are scikit-learn's
def test_scikit_learn_compatibility():
    results = check_estimator(SVIRegressor(rounds=1, gate_steps=20), on_skip=None, on_fail=None)
    assert [result for result in results if result["status"] == "failed"] == []
