"""The closed form against really leaving out each coordinate, for each backend that this machine
has.

The Triton kernels run here on a GPU, or in Triton's interpreter if TRITON_INTERPRET=1 is set before
Python starts; ``test_interpreter.py`` does the latter on machines without a GPU.
"""

import pytest
import torch

import pfdl
from pfdl.decorrelation.kernels import choose_kernels, torch_closed_form as cpu
from pfdl.decorrelation.kernels.function import OneHidden
from tests.decorrelation.kernels.conftest import DEVICE, HAS_TRITON, INTERPRETING, needs_triton
from tests.decorrelation.reference import naive_decomposition

SMALL = [(1, 2, 1), (5, 5, 5)]
LARGE = [(19, 33, 19), (128, 512, 256), (100, 1001, 300), (257, 130, 64), (70, 2100, 40)]
both_sharings = pytest.mark.parametrize("sharing", ["indexed", "strict"])
both_activations = pytest.mark.parametrize("activation", ["relu", "gelu"])


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """In the interpreter the number of tiles and of features in a block is what takes time."""
    if INTERPRETING:
        from pfdl.decorrelation.kernels import triton_closed_form

        for name, value in {
            "ROWS": 8,
            "UNITS": 8,
            "FEATURES": 2,
            "INDEXED_PARAMETER_TILE": (2, 8, 1),
            "STRICT_PARAMETER_TILE": (4, 8, 1),
        }.items():
            monkeypatch.setattr(triton_closed_form, name, value)


def network(p, h, sharing, activation, seed=0, **options):
    torch.manual_seed(seed)
    return pfdl.FeatureDecomposition(
        p, h, sharing=sharing, activation=activation, **options
    ).double()


def laid_out(g, u, dtype, device="cpu"):
    """g and its rows in a backend's terms, in another precision."""

    def there(value):
        return value.detach().to(device, dtype).contiguous()

    return OneHidden(
        there(u),
        there(g.first_weight.T),
        there(g.first_bias),
        there(g.layers[0].weight[0]),
        there(g.layers[0].bias),
        "gelu" if "GELU" in repr(g.activation) else "relu",
    )


def assert_agrees(backend, g, u, dtype, device, tolerance):
    u = u.requires_grad_()
    wanted = naive_decomposition(g, u)
    gradient = torch.randn_like(wanted)
    wanted_gradients = torch.autograd.grad(
        wanted, [u, g.first_weight, g.first_bias, g.layers[0].weight, g.layers[0].bias], gradient
    )
    net = laid_out(g, u, dtype, device)
    gradient = gradient.to(device, dtype)
    out, base = backend.predict(net)
    of_u = backend.feature_gradient(net, base, gradient)
    of_parameters = backend.parameter_gradients(net, base, gradient)
    for found, expected in zip(
        [out, of_u, *of_parameters], [wanted, *wanted_gradients], strict=True
    ):
        assert found.shape == expected.shape
        error = (found.cpu().double() - expected).norm() / expected.norm().clamp_min(1e-3)
        assert error < tolerance, f"relative error {error}"


@needs_triton
@pytest.mark.parametrize("shape", SMALL if INTERPRETING else SMALL + LARGE, ids=str)
@both_sharings
@both_activations
def test_triton(shape, sharing, activation, monkeypatch):
    from pfdl.decorrelation.kernels import triton_closed_form

    if INTERPRETING:  # several tiles in each direction
        monkeypatch.setattr(triton_closed_form, "ROWS", 4)
        monkeypatch.setattr(triton_closed_form, "UNITS", 4)
    n, p, h = shape
    g = network(p, h, sharing, activation)
    # Of millions of pre-activations a few lie so near to zero that float32 takes them for the other
    # side of the ReLU.
    tolerance = 2e-3 if activation == "relu" and n * p * h > 10**6 else 3e-6
    assert_agrees(
        triton_closed_form,
        g,
        torch.randn(n, p, dtype=torch.float64),
        torch.float32,
        DEVICE,
        tolerance,
    )


@needs_triton
@both_sharings
def test_triton_in_turns(sharing, monkeypatch):
    """More rows than the buffers hold."""
    from pfdl.decorrelation.kernels import triton_closed_form

    g = network(3, 5, sharing, "relu")
    blocks = -(-3 // triton_closed_form.FEATURES)
    monkeypatch.setattr(triton_closed_form, "MAX_BLOCK_SUMS", 2 * blocks * 5)  # two rows at a time
    assert_agrees(
        triton_closed_form, g, torch.randn(5, 3, dtype=torch.float64), torch.float32, DEVICE, 3e-6
    )


@needs_triton
@pytest.mark.parametrize(
    ("sharing", "dtype"), [("indexed", torch.float16), ("strict", torch.bfloat16)]
)
def test_triton_takes_half_precision_features(sharing, dtype):
    g = network(3, 5, sharing, "relu").float().to(DEVICE)
    half = torch.randn(6, 3, device=DEVICE).to(dtype).requires_grad_()
    full = half.detach().float().requires_grad_()
    weights = torch.randn(6, 3, device=DEVICE)
    out = g(half)
    expected = g(full)
    assert torch.equal(out, expected)
    (weights * out).sum().backward()
    (weights * expected).sum().backward()
    assert half.grad.dtype == dtype
    assert torch.equal(half.grad, full.grad.to(dtype))


@needs_triton
@both_sharings
def test_no_feature_sees_itself_triton(sharing):
    g = network(5, 5, sharing, "gelu").float().to(DEVICE)
    rows = torch.randn(1, 5, device=DEVICE).expand(5, 5).contiguous().requires_grad_()
    (jacobian,) = torch.autograd.grad(g(rows), rows, torch.eye(5, device=DEVICE))
    assert torch.equal(jacobian.diagonal().cpu(), torch.zeros(5))
    assert (
        jacobian + torch.eye(5, device=DEVICE)
    ).abs().min() > 0  # every other derivative is there


@both_sharings
def test_the_same_call_gives_the_same_bits(sharing):
    g = network(70, 20, sharing, "relu").float().to(DEVICE)
    u = torch.randn(9, 70, device=DEVICE, requires_grad=True)
    first = torch.autograd.grad(g(u).square().sum(), [u, *g.parameters()])
    again = torch.autograd.grad(g(u).square().sum(), [u, *g.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


class Recorder:
    """A backend that notes what it was asked for."""

    def __init__(self, backend):
        self.backend = backend
        self.asked = []

    def __getattr__(self, name):
        self.asked.append(name)
        return getattr(self.backend, name)


def test_only_the_gradient_that_is_needed_is_computed(monkeypatch):
    recorder = Recorder(cpu)
    monkeypatch.setattr("pfdl.decorrelation.decomposition.choose_kernels", lambda *_: recorder)
    decorrelate = pfdl.PartialDecorrelation(6, hidden=5)
    u = torch.randn(4, 6, requires_grad=True)
    for work, wanted in [
        (lambda: decorrelate.fit_step(u), ["predict", "parameter_gradients"]),
        (lambda: decorrelate.penalty(u).backward(), ["predict", "feature_gradient"]),
        (lambda: decorrelate.penalty(u.detach()), ["predict"]),
        (lambda: decorrelate.decomposition(u).sum().backward(), ["predict", "feature_gradient"]),
    ]:
        recorder.asked.clear()
        work()
        assert recorder.asked == wanted


@pytest.mark.parametrize(
    ("sharing", "center", "activation"), [("indexed", "none", "relu"), ("strict", "batch", "gelu")]
)
def test_penalty_and_fit_are_those_of_the_plain_path(sharing, center, activation):
    """On the CPU, on the GPU and, from test_interpreter.py, in the interpreter."""
    torch.manual_seed(0)
    options = {
        "hidden": 7,
        "sharing": sharing,
        "center": center,
        "activation": activation,
        "weight": 3.0,
    }
    fused = pfdl.PartialDecorrelation(5, **options).to(DEVICE)
    plain = pfdl.PartialDecorrelation(5, kernel="plain", **options).to(DEVICE)
    plain.load_state_dict(fused.state_dict())
    for _ in range(2):
        u = torch.randn(6, 5, device=DEVICE)
        found = u.clone().requires_grad_()
        wanted = u.clone().requires_grad_()
        fused(found).backward()
        plain(wanted).backward()
        torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(
            fused.last.decorrelation_loss, plain.last.decorrelation_loss, rtol=1e-4, atol=1e-8
        )
        torch.testing.assert_close(fused.last.r2, plain.last.r2, rtol=1e-4, atol=1e-5)
    for a, b in zip(fused.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_differentiating_twice():
    g = network(5, 4, "strict", "gelu")
    u = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(
        lambda u, weight: torch.func.functional_call(g, {"first_weight": weight}, (u,)),
        (u, g.first_weight),
    )
    penalty = pfdl.PartialDecorrelation(5, hidden=4, activation="gelu").double()
    u = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    if not HAS_TRITON:
        assert torch.autograd.gradgradcheck(penalty.penalty, u)


@pytest.mark.skipif(INTERPRETING, reason="the interpreter changes which kernels are chosen")
def test_which_kernels_are_chosen(monkeypatch):
    def chosen(
        kernel="auto", device="cpu", dtype=torch.float32, hidden=(4,), activation=RELU, rows=3
    ):
        return choose_kernels(kernel, Rows(torch.device(device), rows), dtype, hidden, activation)

    assert chosen(dtype=torch.float64) is cpu
    assert chosen(device="cuda", rows=0) is cpu
    assert chosen("plain") is None
    assert chosen(hidden=(4, 4)) is None
    assert chosen(activation=torch.nn.Tanh()) is None
    assert chosen(device="cuda", dtype=torch.float64) is None
    assert chosen(device="mps") is None
    monkeypatch.setattr("pfdl.decorrelation.kernels.function._has_triton", lambda: False)
    assert chosen(device="cuda") is None


RELU = torch.nn.ReLU()


class Rows:
    """Features on a device that this machine need not have."""

    def __init__(self, device, rows):
        self.device = device
        self.rows = rows

    def __len__(self):
        return self.rows


def test_a_batch_without_rows_has_gradients_of_zero():
    g = network(6, 5, "strict", "relu").float()
    u = torch.empty(0, 6, requires_grad=True)
    gradients = torch.autograd.grad(g(u).sum(), [u, *g.parameters()])
    assert [value.shape for value in gradients] == [
        u.shape,
        *(value.shape for value in g.parameters()),
    ]
    assert not any(value.any() for value in gradients)
    assert network(6, 5, "strict", "relu", kernel="plain").float()(u).shape == (0, 6)
