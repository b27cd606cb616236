"""The controls that follow one direction as strongly as PFDL follows the whole of L_decorr."""

import pytest
import torch
from tests.decorrelation.reference import naive_decorrelation_loss
from tests.objectives.weightings.test_weightings import features as signed_features
from tests.objectives.weightings.test_weightings import naive_balance

from pfdl_lab.controls import AdamCNBB, Level, MatchedCovariance, MatchedLevel, MeanDecorrelation
from pfdl_lab.gradients import gradient_parts


def level_gradient(features, _):
    other = features.detach().clone().requires_grad_()
    Level()(other).backward()
    return other.grad


CONTROLS = {MatchedCovariance: lambda features, parts: parts.covariance, MatchedLevel: level_gradient}


@pytest.mark.parametrize("sharing", ["strict", "indexed"])
@pytest.mark.parametrize("make", CONTROLS)
def test_gradient_has_the_direction_of_the_control_and_the_length_of_the_whole(make, sharing):
    torch.manual_seed(0)
    control = make(6, sharing=sharing).double()
    features = torch.randn(32, 6, dtype=torch.float64).relu().requires_grad_()
    value = control(features)
    value.backward()
    parts = gradient_parts(control.pfdl, features)
    direction = CONTROLS[make](features, parts)
    assert value.item() == 0.0
    torch.testing.assert_close(features.grad, direction * parts.whole.norm() / direction.norm())
    torch.testing.assert_close(control.metrics()["matched_weight"], parts.whole.norm() / direction.norm())


@pytest.mark.parametrize("is_on", [True, False])
def test_g_is_left_alone_in_evaluation_and_where_a_control_is_switched_off(is_on):
    torch.manual_seed(0)
    control = MatchedCovariance(4).train(not is_on)
    control.is_on = is_on
    before = [value.clone() for value in control.pfdl.decomposition.parameters()]
    features = torch.randn(16, 4, requires_grad=True)
    (control(features) + 0 * features.sum()).backward()
    assert bool(features.grad.any()) == bool(control.metrics()) == is_on
    after = control.pfdl.decomposition.parameters()
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def naive_level(u):
    n, p = u.shape
    means = [sum(u[i, j] for j in range(p)) / p for i in range(n)]
    return (sum(mean**2 for mean in means) / n) ** 2


def naive_mean(u):
    others = torch.stack([sum(u[:, k] for k in range(6) if k != j) / 5 for j in range(6)], dim=1)
    return naive_decorrelation_loss(u, others, "none")


@pytest.mark.parametrize(("make", "naive"), [(Level, naive_level), (MeanDecorrelation, naive_mean)])
def test_a_penalty_without_g_is_that_of_the_loop_and_computed_in_single_precision(make, naive):
    u = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    penalty = make(weight=3.0)
    fast, slow = penalty(u), 3 * naive(u)
    torch.testing.assert_close(fast, slow)
    torch.testing.assert_close(3 * next(iter(penalty.metrics().values())), fast)
    torch.testing.assert_close(torch.autograd.grad(fast, u), torch.autograd.grad(slow, u))
    half = (100 * u).half()
    assert torch.equal(penalty(half), penalty(half.float()))
    assert penalty(half).isfinite()


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="weight is -1"):
        Level(weight=-1)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        Level()(torch.zeros(3))


def test_cnbb_by_adam_is_adam_on_its_loss():
    f = signed_features(20, 5)
    logits = torch.zeros(20, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.05)
    for _ in range(7):
        weights = 20 * logits.softmax(0)
        optimizer.zero_grad()
        (naive_balance(f, weights) + 0.01 * weights.square().sum()).backward()
        optimizer.step()
    found = AdamCNBB(steps=7, learning_rate=0.05, size_weight=0.01)(f)
    torch.testing.assert_close(found, 20 * logits.detach().softmax(0), atol=1e-5, rtol=1e-4)
