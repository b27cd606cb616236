"""The controls, and the parts of a gradient, against transcriptions of their definitions."""

import pytest
import torch
from tests.decorrelation.reference import naive_decorrelation_loss, naive_parts

from pfdl import PartialDecorrelation
from pfdl.decorrelation.functional import decorrelation_loss, standardize
from pfdl_lab.controls import Level, MatchedLevel, MeanDecorrelation, PublishedDWR
from pfdl_lab.gradients import probe


def test_the_level_penalty_is_followed_as_strongly_as_l_decorr():
    torch.manual_seed(0)
    control = MatchedLevel(6).double()
    features = torch.randn(32, 6, dtype=torch.float64).relu().requires_grad_()
    control(features).backward()
    other = features.detach().clone().requires_grad_()
    Level()(other).backward()
    (whole,) = torch.autograd.grad(decorrelation_loss(other, control.decomposition(other)), other)
    torch.testing.assert_close(features.grad, other.grad * whole.norm() / other.grad.norm())


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
    fast = penalty(u)
    slow = 3 * naive(u)
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


def test_published_dwr_learns_its_weights_again_after_so_many_epochs_alone():
    torch.manual_seed(0)
    weighting = PublishedDWR(steps=5, every=3)
    learnt = []
    for _ in range(4):
        weighting.fit(torch.randn(20, 3))
        learnt.append(weighting.sample_weights)
    assert torch.equal(learnt[0], learnt[2])
    assert not torch.equal(learnt[2], learnt[3])


@pytest.mark.parametrize(
    "how", [{}, {"sharing": "indexed"}, {"center": "batch"}, {"standardize": True}]
)
def test_the_probe_agrees_with_loops_and_their_gradients(how):
    torch.manual_seed(0)
    penalty = PartialDecorrelation(4, hidden=5, activation="tanh", kernel="plain", **how)
    u = torch.rand(6, 4, dtype=torch.float64)
    for _ in range(20):
        penalty.fit_step(u.float())
    penalty.double()
    found = probe(penalty, u)
    seen = standardize(u.requires_grad_()) if penalty.standardize else u.requires_grad_()
    correlated = penalty.decomposition(seen)
    level_part, covariance_part = naive_parts(seen, correlated)
    loss = naive_decorrelation_loss(seen, correlated, penalty.center)
    expected = {"L_decorr": loss, "level_part": level_part, "covariance_part": covariance_part}
    losses = (loss, covariance_part, naive_level(u))
    whole, covariance, level = (
        torch.autograd.grad(loss, u, retain_graph=True)[0].flatten() for loss in losses
    )
    expected["cosine_level_penalty"] = whole @ level / whole.norm() / level.norm()
    expected["covariance_gradient"] = covariance.norm() / whole.norm()
    assert found == pytest.approx(
        {name: value.item() for name, value in expected.items()}, rel=1e-7, abs=1e-9
    )
