"""Both losses and their gradients by Triton kernels, against autograd on the equations as the paper
writes them.
"""

import copy

import pytest
import torch

import pfdl
from pfdl.decorrelation.distributed import Batch
from pfdl.decorrelation.finiteness import LateReport
from tests.decorrelation.kernels.conftest import DEVICE, INTERPRETING, needs_triton
from tests.decorrelation.reference import (
    exact_decorrelation_loss,
    naive_decomposition_loss,
    naive_decorrelation_loss,
    naive_parts,
)
from tests.states import equal

pytestmark = needs_triton
SHAPES = [(3, 2), (5, 5)]
LARGE = [(128, 2048), (300, 5000)]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """In the interpreter, several tiles in each direction."""
    if INTERPRETING:
        from pfdl.decorrelation.kernels import triton_closed_form, triton_losses

        monkeypatch.setattr(triton_losses, "COLUMN_TILE", {"ROWS": 4, "COLUMNS": 2, "num_warps": 1})
        monkeypatch.setattr(triton_losses, "ROW_LENGTH", 2)
        for name in ("ROWS", "UNITS", "FEATURES"):
            monkeypatch.setattr(triton_closed_form, name, 4)


def arrays(shape, mean=0.5):
    torch.manual_seed(0)
    u = torch.randn(shape, dtype=torch.float64) + mean
    correlated = 0.3 * u + torch.randn_like(u)
    return u.requires_grad_(), correlated.requires_grad_()


def there(*values):
    return [value.detach().to(DEVICE, torch.float32) for value in values]


def assert_near(found, wanted, tolerance=1e-5):
    assert found.shape == wanted.shape
    assert (found.cpu().double() - wanted).norm() <= tolerance * wanted.norm()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_errors_of_the_fit_triton(shape):
    from pfdl.decorrelation.kernels import triton_losses

    u, correlated = arrays(shape)
    loss = naive_decomposition_loss(u, correlated)
    (of_correlated,) = torch.autograd.grad(loss, correlated)
    errors = (u - correlated).square().mean(0).detach()
    gradient, unexplained, variance, means = triton_losses.fit_errors(*there(u, correlated))
    assert_near(gradient, of_correlated)
    assert_near(unexplained, errors)
    assert_near(variance, u.detach().var(0, correction=0))
    assert_near(means.sum(0), u.detach().mean(0))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -5e9])
def test_a_feature_beyond_the_limit_marks_its_column_triton(value):
    from pfdl.decorrelation.kernels import triton_losses

    u, correlated = there(*arrays((7, 5)))
    u[6, 4] = value
    unexplained = triton_losses.fit_errors(u, correlated)[1]
    assert unexplained.isnan().tolist() == [False, False, False, False, True]


@pytest.mark.parametrize("mean", [0.5, 100.0, 1e4])
@pytest.mark.parametrize("center", ["none", "batch"])
@pytest.mark.parametrize("shape", SHAPES + (LARGE if DEVICE == "cuda" else []), ids=str)
def test_penalty_triton(shape, center, mean):
    from pfdl.decorrelation.kernels import triton_losses

    rounded = [values.detach().float().double() for values in arrays(shape, mean)]
    u, correlated = (values.requires_grad_() for values in rounded)
    is_small = u.numel() < 100
    decorrelation_loss = naive_decorrelation_loss if is_small else exact_decorrelation_loss
    loss = decorrelation_loss(u, correlated, center)
    of_u, of_correlated = torch.autograd.grad(loss, (u, correlated), retain_graph=True)
    here = there(u, correlated)
    flags = torch.zeros(2, device=DEVICE)
    *_, means = triton_losses.fit_errors(*here)
    found, at_correlated, direct = triton_losses.penalty(*here, means, center == "batch", flags)
    assert_near(found[0], loss.detach())
    assert_near(at_correlated, of_correlated)
    assert_near(direct, of_u)
    if is_small:
        level, covariance = naive_parts(u, correlated)
        assert_near(found[1], level.detach())
        assert_near(found[2], covariance.detach())
    assert flags.tolist() == [0.0, 0.0]


def test_a_feature_far_larger_than_the_others_is_noticed_triton():
    from pfdl.decorrelation.kernels import triton_losses

    u, correlated = there(*arrays((7, 5)))
    u[2, 3] = 1e6
    flags = torch.zeros(2, device=DEVICE)
    *_, means = triton_losses.fit_errors(u, correlated)
    triton_losses.penalty(u, correlated, means, False, flags)
    assert flags.tolist() == [0.0, 1.0]


def rows(seed):
    return torch.randn(5, 5, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def test_which_calls_are_served_triton():
    from pfdl.decorrelation.kernels.both_steps import serve

    penalty = pfdl.PartialDecorrelation(5, hidden=5).to(DEVICE)
    u = rows(2).requires_grad_()
    assert not serve(penalty, u, Batch(5))  # the first step makes the moments of Adam
    penalty.fit_step(u)
    assert serve(penalty, u, Batch(5))
    assert not serve(penalty, u.detach(), Batch(5))
    assert not serve(penalty, u, Batch(10, 2))


@pytest.mark.parametrize(
    ("sharing", "center", "fit_steps"), [("strict", "none", 1), ("indexed", "batch", 2)]
)
def test_both_steps_at_once_are_the_two_steps_triton(sharing, center, fit_steps):
    from pfdl.decorrelation.kernels.both_steps import both_steps

    torch.manual_seed(0)
    options = {"sharing": sharing, "center": center, "fit_steps": fit_steps}
    together = pfdl.PartialDecorrelation(5, hidden=5, **options).to(DEVICE)
    apart = copy.deepcopy(together)
    first = rows(1)
    together.fit_step(first)
    apart.fit_step(first)
    u = rows(2).requires_grad_()
    flags = LateReport().flags(u.device)
    unexplained, variance, gradient, losses = both_steps(together, u.detach(), flags)
    apart.fit_step(u)
    apart.penalty(u).backward()
    torch.testing.assert_close(unexplained, apart.last.unexplained, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(variance, apart.last.variance, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(gradient, u.grad, rtol=1e-3, atol=1e-7)
    wanted = [apart.last.decorrelation_loss, apart.last.level_part, apart.last.covariance_part]
    torch.testing.assert_close(losses, torch.stack(wanted), rtol=1e-3, atol=1e-8)
    for found, expected in zip(together.parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_the_fused_penalty_is_differentiated_once_only_triton():
    from pfdl.decorrelation.kernels.both_steps import run

    penalty = pfdl.PartialDecorrelation(5, hidden=5).to(DEVICE)
    u = torch.randn(5, 5, device=DEVICE, requires_grad=True)
    penalty.fit_step(u)
    loss = run(penalty, u, 2.0)
    torch.testing.assert_close(loss, 2 * penalty.last.decorrelation_loss)
    assert penalty.completed_fits == 2
    with pytest.raises(RuntimeError, match="construct it with kernel='plain'"):
        torch.autograd.grad(loss, u, create_graph=True)


@pytest.mark.parametrize(
    "value", [torch.nan, 1e10] if INTERPRETING else [torch.nan, -torch.inf, 1e10, 1e38]
)
def test_hostile_features_leave_g_as_it_was_and_are_reported_triton(value, monkeypatch):
    from pfdl.decorrelation.kernels.both_steps import run

    if DEVICE == "cpu":
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    penalty = pfdl.PartialDecorrelation(5, hidden=5).to(DEVICE)
    u = torch.randn(5, 5, device=DEVICE, requires_grad=True)
    penalty.fit_step(u)
    before = copy.deepcopy(dict(penalty.state_dict()))
    hostile = u.detach().clone()
    hostile[4, 4] = value
    run(penalty, hostile.requires_grad_(), 1.0)
    after = dict(penalty.state_dict())
    for name in before.keys() - {"_extra_state"}:
        assert torch.equal(before[name], after[name]), name
    moments, kept = (state["_extra_state"]["optimizer"]["state"] for state in (after, before))
    assert equal(moments, kept)
    with pytest.raises(ValueError, match="That batch did not update g"):
        penalty.late_report.read()
    assert run(penalty, u, 1.0).isfinite()


@pytest.mark.parametrize(
    "layout", [lambda u: u.T.contiguous().T, lambda u: u[:1].expand(5, 5), lambda u: u[::2]]
)
def test_memory_that_is_laid_out_oddly_is_read_as_numbers_triton(layout):
    from pfdl.decorrelation.kernels.both_steps import both_steps

    torch.manual_seed(0)
    odd = layout(torch.randn(5, 5, device=DEVICE))
    penalty = pfdl.PartialDecorrelation(5, hidden=5).to(DEVICE)
    penalty.fit_step(odd.contiguous())
    twin = copy.deepcopy(penalty)
    found = both_steps(penalty, odd, torch.zeros(2, device=DEVICE))
    wanted = both_steps(twin, odd.contiguous(), torch.zeros(2, device=DEVICE))
    assert all(map(torch.equal, found, wanted))
