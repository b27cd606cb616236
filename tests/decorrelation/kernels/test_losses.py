"""Both losses and their gradients in closed form, against autograd on the equations as the paper writes them."""

import os

import pytest
import torch

from pfdl.decorrelation.kernels.torch_backend import TorchBackend
from tests.decorrelation.reference import naive_decomposition_loss, naive_decorrelation_loss

INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1"
HAS_TRITON = INTERPRETING or torch.cuda.is_available()
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(3, 2), (7, 5)]
LARGE = [(128, 2048), (300, 5000)]


@pytest.fixture(params=["torch", "triton"])
def backend(request, monkeypatch):
    """Return a backend, its dtype, its device and how exact it is."""
    if request.param == "torch":
        return TorchBackend, torch.float64, "cpu", 1e-12
    if not HAS_TRITON:
        pytest.skip("no GPU and no interpreter: see test_interpreter.py")
    from pfdl.decorrelation.kernels import triton_losses
    from pfdl.decorrelation.kernels.triton_backend import TritonBackend

    if INTERPRETING:  # several tiles in each direction
        monkeypatch.setattr(triton_losses, "COLUMN_TILE", {"ROWS": 4, "COLUMNS": 2, "num_warps": 1})
        monkeypatch.setattr(triton_losses, "ROW_LENGTH", 2)
    return TritonBackend, torch.float32, DEVICE, 1e-5


def arrays(shape):
    torch.manual_seed(0)
    u = torch.randn(shape, dtype=torch.float64) + 0.5
    return u.requires_grad_(), (0.3 * u + torch.randn_like(u)).detach().requires_grad_()


def assert_near(found, wanted, tolerance):
    assert found.shape == wanted.shape
    assert (found.cpu().double() - wanted).norm() <= tolerance * wanted.norm()


def paper_loss(u, correlated, center):
    """The loss of the paper's loops, or the same without the loops where those would take too long."""
    if u.numel() < 100:
        return naive_decorrelation_loss(u, correlated, "paper", center)
    if center == "batch":
        u, correlated = u - u.mean(0), correlated - correlated.mean(0)
    cross = correlated.T @ u / len(u)
    return ((cross.sum(1) - cross.diagonal()) / (u.shape[1] - 1)).square().mean()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_errors_of_the_fit(backend, shape):
    kernels, dtype, device, tolerance = backend
    u, correlated = arrays(shape)
    (gradient,) = torch.autograd.grad(naive_decomposition_loss(u, correlated), correlated)
    here = u.detach().to(device, dtype), correlated.detach().to(device, dtype)
    found = kernels.fit_errors(*here, len(u), torch.inf)
    assert_near(found.gradient, gradient, tolerance)
    assert_near(found.unexplained, (u - correlated).square().mean(0).detach(), tolerance)
    assert_near(found.variance, u.detach().var(0, correction=0), tolerance)
    of_more = kernels.fit_errors(*here, 2 * len(u), torch.inf)  # as many rows in another process
    torch.testing.assert_close(2 * of_more.gradient, found.gradient)
    torch.testing.assert_close(2 * of_more.unexplained, found.unexplained)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -3e9])
def test_a_feature_beyond_the_limit_marks_its_column(backend, value):
    kernels, dtype, device, _ = backend
    u, correlated = (x.detach().to(device, dtype) for x in arrays((7, 5)))
    u[6, 4] = value
    found = kernels.fit_errors(u, correlated, 7, 1e9).unexplained
    assert found.isnan().tolist() == [False, False, False, False, True]


@pytest.mark.parametrize("center", ["none", "batch"])
@pytest.mark.parametrize("shape", SHAPES + (LARGE if DEVICE == "cuda" else []), ids=str)
def test_penalty(backend, shape, center):
    kernels, dtype, device, tolerance = backend
    u, correlated = arrays(shape)
    loss = paper_loss(u, correlated, center)
    of_u, of_correlated = torch.autograd.grad(loss, (u, correlated))
    here = u.detach().to(device, dtype), correlated.detach().to(device, dtype)
    means = here[0].mean(0) if center == "batch" else None
    sums = kernels.penalty_sums(*here, means)
    assert_near(sums.columns[1], correlated.detach().sum(0), tolerance)
    assert_near(sums.columns[2], u.detach().sum(0), tolerance)
    found = kernels.penalty_gradients(*here, sums, means, len(u), 3.0)
    assert_near(found.loss, loss.detach(), tolerance)
    assert_near(found.of_correlated, 3 * of_correlated, tolerance)
    assert_near(found.direct, 3 * of_u, tolerance)
