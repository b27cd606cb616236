import pytest
import torch

from pfdl import PartialDecorrelation
from pfdl_lab.gradients import probe


def naive(penalty, u):
    """Both parts and L_decorr by loops, from the definition; the gradients by finite differences of the loops."""
    n, p = u.shape
    values = {"L_decorr": 0.0, "level_part": 0.0, "covariance_part": 0.0}
    for j in range(p):
        others = torch.stack([(u[i].sum() - u[i, j]) / (p - 1) for i in range(n)])
        correlated = penalty.decomposition(u)[:, j]
        product = sum(correlated[i] * others[i] for i in range(n)) / n
        level = correlated.mean() * others.mean()
        values["L_decorr"] += float(product) ** 2 / p
        values["level_part"] += float(level) ** 2 / p
        values["covariance_part"] += float(product - level) ** 2 / p
    values["level_penalty"] = float((u.mean(1) ** 2).mean() ** 2)
    return values


def numeric_gradient(function, u, step=1e-6):
    gradient = torch.zeros_like(u)
    for i in range(len(u)):
        for j in range(u.shape[1]):
            moved = u.clone()
            moved[i, j] += step
            up = function(moved)
            moved[i, j] -= 2 * step
            gradient[i, j] = (up - function(moved)) / (2 * step)
    return gradient.flatten()


@pytest.mark.parametrize("sharing", ["strict", "indexed"])
def test_it_agrees_with_loops_and_finite_differences(sharing):
    torch.manual_seed(0)
    penalty = PartialDecorrelation(4, hidden=5, sharing=sharing, activation="tanh", kernel="plain")
    u = torch.rand(6, 4, dtype=torch.float64)
    for _ in range(20):
        penalty.fit_step(u.float())
    penalty.double()
    found = probe(penalty, u)
    expected = naive(penalty, u)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-9), name
    gradients = {name: numeric_gradient(lambda v, name=name: naive(penalty, v)[name], u) for name in expected}
    whole, level = gradients["L_decorr"], gradients["level_penalty"]
    assert found["cosine_level_penalty"] == pytest.approx(float(whole @ level / whole.norm() / level.norm()), abs=1e-5)
    assert found["covariance_gradient"] == pytest.approx(
        float(gradients["covariance_part"].norm() / whole.norm()), abs=1e-5
    )
    assert found["norm_ratio"] == pytest.approx(float(level.norm() / whole.norm()), abs=1e-5)
