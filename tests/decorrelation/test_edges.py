"""Numbers in float32 where they are hard to get right, against really leaving coordinates out, in
float64.
"""

import copy

import pytest
import torch

import pfdl
from pfdl.decorrelation.functional import decorrelation_loss, decorrelation_parts, mean_of_others
from tests.decorrelation.reference import exact_decorrelation_loss, naive_decomposition

P, N = 20, 48


def features(mean=0.0, scale=None):
    """Return features of spread 1 around a mean, of which the fourth has another scale."""
    u = torch.randn(N, P, generator=torch.Generator().manual_seed(1)) + mean
    if scale is not None:
        u[:, 3] *= scale
    return u


def assert_near(found, wanted, tolerance):
    assert (found.double() - wanted).norm() <= tolerance * wanted.norm()


@pytest.mark.parametrize("center", ["none", "batch"])
@pytest.mark.parametrize("mean", [1, 10, 100, 1e3, 1e4])
def test_the_loss_of_features_whose_mean_is_far_larger_than_their_spread(mean, center):
    u = features(mean).requires_grad_()
    correlated = (0.5 * features(mean).roll(1, 1) + 0.1 * features()).requires_grad_()
    exact = u.detach().double().requires_grad_(), correlated.detach().double().requires_grad_()
    loss, wanted = (
        decorrelation_loss(u, correlated, center=center),
        exact_decorrelation_loss(*exact, center),
    )
    assert_near(loss.detach(), wanted.detach(), 5e-3)
    for found, right in zip(
        torch.autograd.grad(loss, (u, correlated)), torch.autograd.grad(wanted, exact), strict=True
    ):
        assert_near(found, right, 5e-3)
    covariance = exact_decorrelation_loss(*exact, "batch").detach()
    assert_near(decorrelation_parts(u, correlated).covariance.detach(), covariance, 5e-3)


@pytest.mark.parametrize("sharing", ["strict", "indexed"])
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e3, 1e6])
def test_a_single_feature_of_another_scale(scale, sharing):
    torch.manual_seed(0)
    g = pfdl.FeatureDecomposition(P, 8, sharing=sharing)
    exact = copy.deepcopy(g).double()
    u = features(scale=scale).requires_grad_()
    v = u.detach().double().requires_grad_()
    correlated, wanted = g(u), naive_decomposition(exact, v)
    for column, right in zip(correlated.T, wanted.T, strict=True):
        assert_near(column.detach(), right.detach(), 1e-5)
    of_g = torch.autograd.grad(
        (u - correlated).square().mean(), [u, *g.parameters()], retain_graph=True
    )
    of_exact = torch.autograd.grad(
        (v - wanted).square().mean(), [v, *exact.parameters()], retain_graph=True
    )
    for found, right in zip(of_g, of_exact, strict=True):
        assert_near(found, right, 1e-4)
    loss, right = decorrelation_loss(u, correlated), exact_decorrelation_loss(v, wanted, "none")
    assert_near(loss.detach(), right.detach(), 1e-4)
    (found,), (right,) = torch.autograd.grad(loss, u), torch.autograd.grad(right, v)
    for column, wanted_column in zip(found.T, right.T, strict=True):
        assert_near(column, wanted_column, 1e-3)


def test_a_mean_of_others_has_nothing_of_the_feature_itself():
    u = features()
    before = mean_of_others(u)[0, 3]
    u[0, 3] = 1e12
    assert torch.equal(mean_of_others(u)[0, 3], before)
