import pytest
import torch
from tests.decorrelation.reference import naive_decorrelation_loss, naive_parts

from pfdl import PartialDecorrelation
from pfdl_lab.gradients import probe


def naive(penalty, u):
    """Both parts, L_decorr and the level penalty by loops."""
    correlated = penalty.decomposition(u)
    level, covariance = naive_parts(u, correlated)
    values = {"L_decorr": naive_decorrelation_loss(u, correlated, "none"), "level_part": level}
    values |= {"covariance_part": covariance, "level_penalty": (u.mean(1) ** 2).mean() ** 2}
    return values


@pytest.mark.parametrize("sharing", ["strict", "indexed"])
def test_it_agrees_with_loops_and_their_gradients(sharing):
    torch.manual_seed(0)
    penalty = PartialDecorrelation(4, hidden=5, sharing=sharing, activation="tanh", kernel="plain")
    u = torch.rand(6, 4, dtype=torch.float64)
    for _ in range(20):
        penalty.fit_step(u.float())
    penalty.double()
    found = probe(penalty, u)
    expected = naive(penalty, u.requires_grad_())
    for name, value in expected.items():
        assert found[name] == pytest.approx(value.item(), rel=1e-9), name
    gradients = {
        name: torch.autograd.grad(value, u, retain_graph=True)[0].flatten() for name, value in expected.items()
    }
    whole, level = gradients["L_decorr"], gradients["level_penalty"]
    assert found["cosine_level_penalty"] == pytest.approx(float(whole @ level / whole.norm() / level.norm()), abs=1e-9)
    assert found["covariance_gradient"] == pytest.approx(
        float(gradients["covariance_part"].norm() / whole.norm()), abs=1e-9
    )
    assert found["norm_ratio"] == pytest.approx(float(level.norm() / whole.norm()), abs=1e-9)
