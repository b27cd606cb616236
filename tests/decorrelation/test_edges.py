"""Numbers in float32 where they are hard to get right, against really leaving coordinates out, in
float64.
"""

import copy

import pytest
import torch

import pfdl
from pfdl.decorrelation.functional import decorrelation_loss, decorrelation_parts, mean_of_others
from tests.decorrelation.reference import exact_decorrelation_loss, naive_decomposition

P = 20
N = 48


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
    exact_u = u.detach().double().requires_grad_()
    exact_correlated = correlated.detach().double().requires_grad_()
    exact = (exact_u, exact_correlated)
    loss = decorrelation_loss(u, correlated, center=center)
    wanted = exact_decorrelation_loss(*exact, center)
    assert_near(loss.detach(), wanted.detach(), 5e-3)
    gradients = torch.autograd.grad(loss, (u, correlated))
    for found, right in zip(gradients, torch.autograd.grad(wanted, exact), strict=True):
        assert_near(found, right, 5e-3)
    covariance = exact_decorrelation_loss(*exact, "batch").detach()
    assert_near(decorrelation_parts(u, correlated).covariance.detach(), covariance, 5e-3)


@pytest.mark.parametrize("sharing", ["strict", "indexed"])
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e3, 1e6])
class TestASingleFeatureOfAnotherScale:
    @pytest.fixture(autouse=True)
    def both(self, scale, sharing):
        """g in float32, and really leaving coordinates out in float64."""
        torch.manual_seed(0)
        self.g = pfdl.FeatureDecomposition(P, 8, sharing=sharing)
        self.exact_g = copy.deepcopy(self.g).double()
        self.u = features(scale=scale).requires_grad_()
        self.exact_u = self.u.detach().double().requires_grad_()
        self.correlated = self.g(self.u)
        self.exact = naive_decomposition(self.exact_g, self.exact_u)

    def test_predictions(self):
        for found, wanted in zip(self.correlated.T, self.exact.T, strict=True):
            assert_near(found.detach(), wanted.detach(), 1e-5)

    def test_gradients_of_the_loss_of_g(self):
        loss = (self.u - self.correlated).square().mean()
        exact = (self.exact_u - self.exact).square().mean()
        gradients = torch.autograd.grad(loss, [self.u, *self.g.parameters()])
        wanted = torch.autograd.grad(exact, [self.exact_u, *self.exact_g.parameters()])
        for found, right in zip(gradients, wanted, strict=True):
            assert_near(found, right, 1e-4)

    def test_the_penalty_and_its_gradient(self):
        loss = decorrelation_loss(self.u, self.correlated)
        exact = exact_decorrelation_loss(self.exact_u, self.exact, "none")
        assert_near(loss.detach(), exact.detach(), 1e-4)
        (gradient,) = torch.autograd.grad(loss, self.u)
        (wanted,) = torch.autograd.grad(exact, self.exact_u)
        for column, right in zip(gradient.T, wanted.T, strict=True):
            assert_near(column, right, 1e-3)


def test_a_mean_of_others_has_nothing_of_the_feature_itself():
    u = features()
    before = mean_of_others(u)[0, 3]
    u[0, 3] = 1e12
    assert torch.equal(mean_of_others(u)[0, 3], before)
