"""The level and the covariance part of the penalty, and its scale-free form, on every path."""

import pytest
import torch

from pfdl import Objective
from pfdl.decorrelation.functional import decorrelation_loss, decorrelation_parts, standardize
from tests.decorrelation.reference import naive_decomposition, naive_decorrelation_loss, naive_parts
from tests.objectives.penalties.small_batches import batch, make

PATHS = {"fused": {}, "plain": {"kernel": "plain"}, "deep": {"hidden": (5, 4)}, "indexed": {"sharing": "indexed"}}


@pytest.mark.parametrize("center", ["none", "batch"])
@pytest.mark.parametrize("path", PATHS)
def test_the_last_call_knows_its_parts(path, center):
    penalty = make(center=center, **PATHS[path]).double()
    u = batch().double().requires_grad_()
    penalty(u)
    wanted = decorrelation_parts(u, penalty.decomposition(u))
    torch.testing.assert_close(penalty.last.level_part, wanted.level.detach())
    torch.testing.assert_close(penalty.last.covariance_part, wanted.covariance.detach())
    summary = penalty.last.summary()
    assert summary["level_part"] == pytest.approx(wanted.level.item())
    assert summary["covariance_part"] == pytest.approx(wanted.covariance.item())
    assert penalty.metrics()["level_part"] == penalty.last.level_part


def test_the_pairwise_form_has_no_parts():
    penalty = make(form="pairwise")
    penalty(batch())
    assert penalty.last.level_part is None
    assert "covariance_part" not in penalty.last.summary()
    with pytest.raises(ValueError, match="form is 'pairwise'; only the paper's form"):
        penalty.gradient_parts(batch())
    assert Objective([penalty]).probe(batch()) == {}


@pytest.mark.parametrize("path", PATHS)
def test_the_gradients_of_the_parts_are_those_of_the_loops(path):
    penalty = make(weight=7.0, **PATHS[path]).double()
    u = batch().double().requires_grad_()
    penalty.fit_step(u)
    found = penalty.gradient_parts(u)
    correlated = naive_decomposition(penalty.decomposition, u)
    level, covariance = naive_parts(u, correlated)
    whole = naive_decorrelation_loss(u, correlated, "paper", "none")
    for gradient, loss in [(found.whole, whole), (found.level, level), (found.covariance, covariance)]:
        torch.testing.assert_close(gradient, torch.autograd.grad(loss, u, retain_graph=True)[0])
    summary = found.summary()
    assert summary["norm"] == pytest.approx(found.whole.norm().item())
    assert summary["level_norm"] == pytest.approx(found.level.norm().item())
    cosine = (found.covariance * found.whole).sum() / found.covariance.norm() / found.whole.norm()
    assert summary["covariance_cosine"] == pytest.approx(cosine.item())
    shares = Objective([penalty]).probe(u)
    assert shares["level_gradient"].item() == pytest.approx((found.level.norm() / found.whole.norm()).item())
    assert shares["covariance_gradient"].item() == pytest.approx((found.covariance.norm() / found.whole.norm()).item())
    assert u.grad is None


def test_asking_for_the_parts_updates_nothing():
    penalty = make()
    before = penalty.last
    with torch.no_grad():
        penalty.gradient_parts(batch())
    with torch.inference_mode():
        penalty.gradient_parts(batch())
    assert penalty.completed_fits == 0
    assert penalty.last is before


@pytest.mark.parametrize("path", PATHS)
def test_standardised_features_enter_both_losses(path):
    penalty, twin = make(standardize=True, **PATHS[path]).double(), make(**PATHS[path]).double()
    u = batch().double().requires_grad_()
    v = standardize(u.detach()).requires_grad_()
    torch.testing.assert_close(penalty(u), twin(v))
    torch.testing.assert_close(penalty.last.r2, twin.last.r2)
    for found, wanted in zip(penalty.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(found, wanted)
    w = standardize(u)
    slow = naive_decorrelation_loss(w, naive_decomposition(twin.decomposition, w), "paper", "none")
    (wanted,) = torch.autograd.grad(slow, u)
    (found,) = torch.autograd.grad(penalty.penalty(u), u)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(penalty.gradient_parts(u).whole, wanted)
    assert penalty.last.level_part < 1e-25


def test_the_scale_free_form_has_no_gradient_along_the_scale():
    penalty = make(standardize=True).double()
    u = batch().double().requires_grad_()
    (gradient,) = torch.autograd.grad(penalty(u), u)
    assert gradient.norm() > 0
    assert (gradient * u).sum().abs() < 1e-9 * gradient.norm() * u.norm()
    assert penalty.penalty(1e-6 * u).item() == pytest.approx(penalty.penalty(u).item())
    plain = make().double()
    plain.fit_step(u)
    assert plain.penalty(1e-6 * u) < 1e-6 * decorrelation_loss(u, plain.decomposition(u))
