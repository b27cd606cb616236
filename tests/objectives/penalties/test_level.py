"""The controls without a network, against loops written from their definitions."""

import pytest
import torch

from pfdl import make_objective
from pfdl.objectives.penalties import Level, MeanDecorrelation
from tests.decorrelation.reference import naive_decorrelation_loss
from tests.objectives.penalties.small_batches import batch


def naive_level(u):
    n, p = u.shape
    means = [sum(u[i, j] for j in range(p)) / p for i in range(n)]
    return (sum(mean**2 for mean in means) / n) ** 2


def naive_mean_decorrelation(u):
    p = u.shape[1]
    others = torch.stack([sum(u[:, k] for k in range(p) if k != j) / (p - 1) for j in range(p)], dim=1)
    return naive_decorrelation_loss(u, others, "none")


@pytest.mark.parametrize(("penalty", "naive"), [(Level, naive_level), (MeanDecorrelation, naive_mean_decorrelation)])
def test_value_and_gradient_are_those_of_the_loops(penalty, naive):
    u = batch().double().requires_grad_()
    fast, slow = penalty(weight=3.0)(u), 3 * naive(u)
    torch.testing.assert_close(fast, slow)
    torch.testing.assert_close(torch.autograd.grad(fast, u), torch.autograd.grad(slow, u))


@pytest.mark.parametrize("penalty", [Level, MeanDecorrelation])
def test_half_precision_is_computed_in_single(penalty):
    u = 100 * batch()
    half = u.to(torch.float16)
    assert torch.equal(penalty()(half), penalty()(half.float()))
    assert penalty()(half).isfinite()


@pytest.mark.parametrize("name", ["level", "mean-decorrelation"])
def test_it_has_a_name_and_logs_its_value(name):
    objective = make_objective(name, 6, **{name: {"weight": 2.0}})
    assert objective.needs == {"features"}
    u, logits = batch(), torch.zeros(12, 3)
    loss = objective(logits, torch.zeros(12, dtype=torch.long), features=u)
    (value,) = (value for key, value in objective.metrics().items() if key.startswith("L_"))
    torch.testing.assert_close(loss, torch.tensor(3.0).log() + 2 * value)


@pytest.mark.parametrize("penalty", [Level, MeanDecorrelation])
def test_what_makes_no_sense_is_refused(penalty):
    with pytest.raises(ValueError, match="weight is -1"):
        penalty(weight=-1)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        penalty()(torch.zeros(3))
    with pytest.raises(TypeError, match="is a list"):
        penalty()([1.0])
    assert "weight=2.0" in repr(penalty(weight=2.0))
