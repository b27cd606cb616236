"""The readings of the paper's row: each is what its name says, and the page sorts them."""

import numpy as np
import pytest
import torch
from tests.cli.typing_commands import typed

from pfdl_lab.mmads import readings
from pfdl_lab.mmads.readings import ESTIMATORS, USES, Network, train_network

rng = np.random.default_rng(0)
X, G = rng.normal(size=(200, 3)), rng.normal(size=(200, 3))
Y = X @ [1.0, -2.0, 0.5] + G @ [0.3, 0.0, -0.4] + 4.0 + 0.1 * rng.normal(size=200)


@pytest.mark.parametrize("estimator", ["least norm", "ridge 0.01 n"])
def test_estimators_agree_with_least_squares_where_they_should(estimator):
    beta = ESTIMATORS[estimator](X - X.mean(0), Y - Y.mean())
    exact = np.linalg.lstsq(np.c_[X, np.ones(200)], Y, rcond=None)[0][:3]
    np.testing.assert_allclose(beta, exact, atol=1e-8 if estimator == "least norm" else 0.05)


def test_rmsprop_takes_the_steps_of_tensorflow(monkeypatch):
    # At the end its steps change sign by rounding
    monkeypatch.setattr(readings, "ESTIMATOR_STEPS", 200)
    columns, y = X - X.mean(0), Y - Y.mean()
    beta = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    square = torch.ones(3, dtype=torch.float64)
    for _ in range(readings.ESTIMATOR_STEPS):
        loss = (torch.from_numpy(columns) @ beta - torch.from_numpy(y)).square().mean()
        (gradient,) = torch.autograd.grad(loss, beta)
        square = 0.9 * square + 0.1 * gradient**2
        beta = (
            (beta - readings.ESTIMATOR_RATE * gradient / (square + 1e-10).sqrt())
            .detach()
            .requires_grad_()
        )
    np.testing.assert_allclose(
        ESTIMATORS["RMSProp as DWR"](columns, y), beta.detach().numpy(), atol=1e-10
    )


def test_uses_are_what_their_names_say():
    solve = ESTIMATORS["least norm"]
    joined = np.linalg.lstsq(np.c_[X, G, np.ones(200)], Y, rcond=None)[0]
    fitted = {name: use(solve, X, G, Y) for name, use in USES.items()}
    np.testing.assert_allclose(fitted["[X, g]"].beta, joined[:3])
    np.testing.assert_allclose(fitted["[X, g]"].predict(X, G), np.c_[X, G, np.ones(200)] @ joined)
    difference = np.linalg.lstsq(np.c_[X - G, np.ones(200)], Y, rcond=None)[0]
    np.testing.assert_allclose(
        fitted["X − g"].predict(X, G), np.c_[X - G, np.ones(200)] @ difference
    )
    for name in ("[X, g], g dropped", "g partialled out of y and X", "g partialled out of y"):
        np.testing.assert_allclose(fitted[name].predict(X, G), fitted[name].predict(X, 0 * G))
        assert np.mean(fitted[name].predict(X, G)) == pytest.approx(Y.mean())
        assert np.allclose(fitted[name].beta, joined[:3]) == (name != "g partialled out of y")


def test_the_description_shrinks_along_the_large_components_alone():
    g = train_network(Network("nothing", 0.4, standardised=False), X, 0, 0)(X)
    components, least = np.linalg.eigh(np.cov(X.T))[1], ESTIMATORS["least norm"]
    beta, shrunk = least(X - X.mean(0), Y - Y.mean()), readings.SHRINK(least, X, g, Y).beta
    np.testing.assert_allclose(shrunk @ components, beta @ components * [1, 1, 1 / 3])


@pytest.mark.parametrize("sees", ["shared", "indexed", "own"])
def test_a_g_that_leaves_a_column_out_does_not_depend_on_it(sees):
    g = train_network(Network(sees), X, iterations=3, seed=0)
    before, after = g(X), g(X + 5.0 * np.eye(3)[1])
    np.testing.assert_allclose(before[:, 1], after[:, 1], atol=1e-5)
    assert not np.allclose(before[:, 0], after[:, 0])


def test_a_linear_g_of_full_rank_that_sees_all_is_the_identity():
    np.testing.assert_allclose(train_network(Network("all, linear", 1.0), X, 0, 0)(X), X)


def test_the_command_sorts_readings_by_their_distance(tmp_path):
    typed(f"reproduce readings --quick --seeds 2 --jobs 1 -o {tmp_path / 'run'}")
    page = (tmp_path / "run" / "table.md").read_text(encoding="utf-8")
    assert "the paper's row of PFDL" in page
    assert "Not a reading but a description" in page
    results = readings.pd.read_csv(tmp_path / "run" / "results.csv")
    assert set(results["seed"]) == {0, 1}
    distances = readings.distances(results)["distance"]
    assert distances.is_monotonic_increasing
    assert len(distances) == 2 * len(USES) * len(ESTIMATORS) + 1
