"""The controls that follow one direction as strongly as PFDL follows the whole of L_decorr."""

import pytest
import torch
from tests.decorrelation.reference import naive_decorrelation_loss

import pfdl
from pfdl_lab.controls import Level, MatchedCovariance, MatchedLevel, MeanDecorrelation
from pfdl_lab.gradients import gradient_parts


@pytest.mark.parametrize("sharing", ["strict", "indexed"])
def test_gradient_has_the_direction_of_the_covariance_part_and_the_length_of_the_whole(sharing):
    torch.manual_seed(0)
    control = MatchedCovariance(6, sharing=sharing).double()
    features = torch.randn(32, 6, dtype=torch.float64).relu().requires_grad_()
    value = control(features)
    value.backward()
    parts = gradient_parts(control.pfdl, features)
    assert value.item() == 0.0
    torch.testing.assert_close(features.grad.norm(), parts.whole.norm())
    cosine = torch.nn.functional.cosine_similarity(features.grad.flatten(), parts.covariance.flatten(), dim=0)
    torch.testing.assert_close(cosine, torch.ones_like(cosine))
    assert control.metrics()["matched_weight"] > 1


def test_evaluation_leaves_g_as_it_was():
    torch.manual_seed(0)
    control = MatchedCovariance(4).eval()
    before = [value.clone() for value in control.pfdl.decomposition.parameters()]
    control(torch.randn(16, 4))
    after = control.pfdl.decomposition.parameters()
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_the_level_control_has_the_direction_of_the_level_penalty_and_the_length_of_the_whole():
    torch.manual_seed(0)
    control = MatchedLevel(6).double()
    features = torch.randn(32, 6, dtype=torch.float64).relu().requires_grad_()
    control(features).backward()
    other = features.detach().clone().requires_grad_()
    Level()(other).backward()
    torch.testing.assert_close(features.grad.norm(), gradient_parts(control.pfdl, features).whole.norm())
    torch.testing.assert_close(features.grad / features.grad.norm(), other.grad / other.grad.norm())


def test_a_control_that_is_switched_off_asks_nothing_and_trains_no_g():
    torch.manual_seed(0)
    control = MatchedCovariance(4)
    control.is_on = False
    before = [value.clone() for value in control.pfdl.decomposition.parameters()]
    features = torch.randn(16, 4, requires_grad=True)
    (control(features) + 0 * features.sum()).backward()
    assert features.grad.abs().max() == 0
    assert control.metrics() == {}
    after = control.pfdl.decomposition.parameters()
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize("name", ["matched-covariance", "matched-level"])
def test_the_controls_have_names_among_the_objectives(name):
    objective = pfdl.make_objective(name, 6, **{name: {"sharing": "indexed"}})
    assert objective.needs == {"features"}


def test_the_mean_of_the_others_in_place_of_g_is_that_of_the_loop():
    u = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    others = torch.stack([sum(u[:, k] for k in range(6) if k != j) / 5 for j in range(6)], dim=1)
    fast, slow = MeanDecorrelation(weight=3.0)(u), 3 * naive_decorrelation_loss(u, others, "none")
    torch.testing.assert_close(fast, slow)
    torch.testing.assert_close(torch.autograd.grad(fast, u), torch.autograd.grad(slow, u))
