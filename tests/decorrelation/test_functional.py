import pytest
import torch
from hypothesis import given, settings, strategies as st

from pfdl.decorrelation.functional import (
    CENTERINGS,
    decomposition_loss,
    decorrelation_loss,
    decorrelation_parts,
    standardize,
)
from tests.decorrelation.reference import (
    naive_decomposition_loss,
    naive_decorrelation_loss,
    naive_parts,
)

U = torch.tensor([[1.0, 2.0, -1.0], [0.0, 1.0, 3.0]])
CORRELATED = torch.tensor([[1.0, 0.0, 2.0], [1.0, 1.0, 0.0]])


@settings(max_examples=40)
@given(
    n=st.integers(2, 7),
    p=st.integers(2, 7),
    center=st.sampled_from(CENTERINGS),
    seed=st.integers(0, 10**6),
)
def test_agrees_with_the_loops_of_the_equation(n, p, center, seed):
    generator = torch.Generator().manual_seed(seed)
    u, correlated = torch.randn(2, n, p, dtype=torch.float64, generator=generator) + 0.5
    u.requires_grad_()
    correlated.requires_grad_()
    parts = decorrelation_parts(u, correlated)
    level, covariance = naive_parts(u, correlated)
    pairs = [
        (decomposition_loss(u, correlated), naive_decomposition_loss(u, correlated)),
        (
            decorrelation_loss(u, correlated, center=center),
            naive_decorrelation_loss(u, correlated, center),
        ),
        (parts.level, level),
        (parts.covariance, covariance),
    ]
    for fast, slow in pairs:
        torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-11)
        found = torch.autograd.grad(fast, (u, correlated), retain_graph=True)
        wanted = torch.autograd.grad(slow, (u, correlated), retain_graph=True)
        torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-10)
    assert parts.covariance == decorrelation_loss(u, correlated, center="batch")


def loss_and_gradients(rows, dtype):
    u, correlated = rows.to(dtype).requires_grad_().unbind()
    loss = decorrelation_loss(u, correlated, center="batch")
    return [loss, *torch.autograd.grad(loss, (u, correlated))]


def test_means_that_are_all_rounded_alike_do_not_add_up_in_float32():
    """A mean of 10⁴ is rounded by 4·10⁻⁴, here in one direction: summed over 5,000 features that is
    3 % of a spread.
    """
    generator = torch.Generator().manual_seed(0)
    deviations = torch.randn(2, 300, 5000, dtype=torch.float64, generator=generator)
    rows = (deviations - deviations.mean(1, keepdim=True) + 10000.0004).float()
    in_float32 = loss_and_gradients(rows, torch.float32)
    exact = loss_and_gradients(rows, torch.float64)
    for found, wanted in zip(in_float32, exact, strict=True):
        assert (found - wanted).norm() <= 1e-4 * wanted.norm()


def features_of_all_scales():
    """Four features around 2, of which the last is constant."""
    generator = torch.Generator().manual_seed(0)
    spread = torch.tensor([1.0, 3.0, 0.5, 0.0], dtype=torch.float64)
    return torch.randn(20, 4, generator=generator, dtype=torch.float64) * spread + 2


def test_standardised_features_have_mean_zero_and_variance_one():
    standardised = standardize(features_of_all_scales())[:, :3]
    zeros = torch.zeros(3, dtype=torch.float64)
    torch.testing.assert_close(standardised.mean(0), zeros)
    torch.testing.assert_close(standardised.square().mean(0), zeros + 1, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("p", [3, 400])
def test_standardising_adds_a_hundred_thousandth_of_the_mean_variance_to_each(p):
    generator = torch.Generator().manual_seed(1)
    scales = torch.linspace(0, 2, p, dtype=torch.float64)
    u = torch.randn(15, p, generator=generator, dtype=torch.float64) * scales
    variances = [u[:, j].var(correction=0) for j in range(p)]
    floor = 1e-5 * sum(variances) / p
    columns = [(u[:, j] - u[:, j].mean()) / (variances[j] + floor) ** 0.5 for j in range(p)]
    torch.testing.assert_close(standardize(u), torch.stack(columns, dim=1), rtol=1e-9, atol=1e-12)


def test_standardising_makes_a_constant_feature_zero():
    u = features_of_all_scales()
    assert torch.equal(standardize(u)[:, 3], torch.zeros(20, dtype=torch.float64))
    assert torch.equal(standardize(torch.ones(3, 2)), torch.zeros(3, 2))


def test_standardising_forgets_the_scale():
    u = features_of_all_scales()
    torch.testing.assert_close(standardize(1e-9 * u), standardize(u))


def test_standardising_has_the_right_gradient():
    generator = torch.Generator().manual_seed(2)
    u = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(standardize, u)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: decomposition_loss(U, CORRELATED[:, :2]),
            r"features have shape \(2, 3\) but correlated has \(2, 2\)",
        ),
        (lambda: decorrelation_loss(U, CORRELATED, center="mean"), "center is 'mean'"),
        (lambda: decorrelation_loss(U[:1], CORRELATED[:1]), "batch of 1"),
        (lambda: decorrelation_loss(U[:, :1], CORRELATED[:, :1]), "has 1 feature"),
        (lambda: standardize(U[:1]), "batch of 1"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
