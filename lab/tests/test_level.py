"""The level penalty against a loop written from its definition."""

import pytest
import torch

from pfdl import make_objective
from pfdl_lab.controls import Level


def batch(n=12, p=6):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, p, generator=generator).relu()


def naive_level(u):
    n, p = u.shape
    means = [sum(u[i, j] for j in range(p)) / p for i in range(n)]
    return (sum(mean**2 for mean in means) / n) ** 2


def test_value_and_gradient_are_those_of_the_loop():
    u = batch().double().requires_grad_()
    fast, slow = Level(weight=3.0)(u), 3 * naive_level(u)
    torch.testing.assert_close(fast, slow)
    torch.testing.assert_close(torch.autograd.grad(fast, u), torch.autograd.grad(slow, u))


def test_half_precision_is_computed_in_single():
    u = 100 * batch()
    half = u.to(torch.float16)
    assert torch.equal(Level()(half), Level()(half.float()))
    assert Level()(half).isfinite()


def test_it_has_a_name_and_logs_its_value():
    objective = make_objective("level", 6, level={"weight": 2.0})
    assert objective.needs == {"features"}
    u, logits = batch(), torch.zeros(12, 3)
    loss = objective(logits, torch.zeros(12, dtype=torch.long), features=u)
    (value,) = (value for key, value in objective.metrics().items() if key.startswith("L_"))
    torch.testing.assert_close(loss, torch.tensor(3.0).log() + 2 * value)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="weight is -1"):
        Level(weight=-1)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        Level()(torch.zeros(3))
    with pytest.raises(TypeError, match="is a list"):
        Level()([1.0])
