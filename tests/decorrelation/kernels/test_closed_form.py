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
from tests.decorrelation.small_batches import same

SMALL = [(1, 2, 1), (5, 5, 5)]
LARGE = [(19, 33, 19), (128, 512, 256), (100, 1001, 300), (257, 130, 64), (70, 2100, 40)]
both_sharings = pytest.mark.parametrize("sharing", ["indexed", "strict"])
both_activations = pytest.mark.parametrize("activation", ["relu", "gelu"])


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """In the interpreter the number of tiles and of features in a block is what takes time."""
    if INTERPRETING:
        from pfdl.decorrelation.kernels import triton_closed_form

        monkeypatch.setattr(triton_closed_form, "ROWS", 8)
        monkeypatch.setattr(triton_closed_form, "UNITS", 8)
        monkeypatch.setattr(triton_closed_form, "FEATURES", 2)
        monkeypatch.setattr(triton_closed_form, "INDEXED_PARAMETER_TILE", (2, 8, 1))
        monkeypatch.setattr(triton_closed_form, "STRICT_PARAMETER_TILE", (4, 8, 1))


def network(p, h, sharing, activation, seed=0, **options):
    torch.manual_seed(seed)
    g = pfdl.FeatureDecomposition(p, h, sharing=sharing, activation=activation, **options)
    return g.double()


def laid_out(g, u, dtype, device="cpu"):
    """g and its rows in a backend's terms, in another precision."""

    def there(value):
        return value.detach().to(device, dtype).contiguous()

    return OneHidden(
        u=there(u),
        weight=there(g.first_weight.T),
        offset=there(g.first_bias),
        readout=there(g.layers[0].weight[0]),
        constant=there(g.layers[0].bias),
        activation="gelu" if isinstance(g.activation, torch.nn.GELU) else "relu",
    )


def assert_agrees(backend, g, u, dtype, device, tolerance):
    u = u.requires_grad_()
    inputs = [u, g.first_weight, g.first_bias, g.layers[0].weight, g.layers[0].bias]
    wanted = naive_decomposition(g, u)
    gradient = torch.randn_like(wanted)
    wanted_gradients = torch.autograd.grad(wanted, inputs, gradient)
    net = laid_out(g, u, dtype, device)
    gradient = gradient.to(device, dtype)
    out, base = backend.predict(net)
    of_u = backend.feature_gradient(net, base, gradient)
    of_parameters = backend.parameter_gradients(net, base, gradient)
    results = [out, of_u, *of_parameters]
    for found, expected in zip(results, [wanted, *wanted_gradients], strict=True):
        assert found.shape == expected.shape
        error = (found.cpu().double() - expected).norm()
        assert error < tolerance * expected.norm().clamp_min(1e-3)


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
    has_kinks_nearby = activation == "relu" and n * p * h > 10**6
    tolerance = 2e-3 if has_kinks_nearby else 3e-6
    u = torch.randn(n, p, dtype=torch.float64)
    assert_agrees(triton_closed_form, g, u, torch.float32, DEVICE, tolerance)


@needs_triton
@both_sharings
def test_triton_in_turns(sharing, monkeypatch):
    """More rows than the buffers hold."""
    from pfdl.decorrelation.kernels import triton_closed_form

    g = network(3, 5, sharing, "relu")
    blocks = -(-3 // triton_closed_form.FEATURES)
    monkeypatch.setattr(triton_closed_form, "MAX_BLOCK_SUMS", 2 * blocks * 5)  # two rows at a time
    u = torch.randn(5, 3, dtype=torch.float64)
    assert_agrees(triton_closed_form, g, u, torch.float32, DEVICE, 3e-6)


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
    (of_half,) = torch.autograd.grad((weights * out).sum(), half)
    (of_full,) = torch.autograd.grad((weights * expected).sum(), full)
    assert of_half.dtype == dtype
    assert torch.equal(of_half, of_full.to(dtype))


@needs_triton
@both_sharings
def test_no_feature_sees_itself_triton(sharing):
    g = network(5, 5, sharing, "gelu").float().to(DEVICE)
    rows = torch.randn(1, 5, device=DEVICE).expand(5, 5).contiguous().requires_grad_()
    (jacobian,) = torch.autograd.grad(g(rows), rows, torch.eye(5, device=DEVICE))
    assert not jacobian.diagonal().any()
    others = jacobian.cpu()[~torch.eye(5, dtype=torch.bool)]
    assert others.abs().min() > 0


@both_sharings
def test_the_same_call_gives_the_same_bits(sharing):
    g = network(70, 20, sharing, "relu").float().to(DEVICE)
    u = torch.randn(9, 70, device=DEVICE, requires_grad=True)
    inputs = [u, *g.parameters()]
    first = torch.autograd.grad(g(u).square().sum(), inputs)
    again = torch.autograd.grad(g(u).square().sum(), inputs)
    assert same(first, again)


class Recorder:
    """A backend that notes what it was asked for."""

    def __init__(self, backend):
        self.backend = backend
        self.asked = []

    def __getattr__(self, name):
        self.asked.append(name)
        return getattr(self.backend, name)


@pytest.mark.parametrize(
    ("work", "asked"),
    [
        (lambda penalty, u: penalty.fit_step(u), ["predict", "parameter_gradients"]),
        (lambda penalty, u: penalty.penalty(u).backward(), ["predict", "feature_gradient"]),
        (lambda penalty, u: penalty.penalty(u.detach()), ["predict"]),
        (
            lambda penalty, u: penalty.decomposition(u).sum().backward(),
            ["predict", "feature_gradient"],
        ),
    ],
)
def test_only_the_gradient_that_is_needed_is_computed(work, asked, monkeypatch):
    recorder = Recorder(cpu)
    monkeypatch.setattr("pfdl.decorrelation.decomposition.choose_kernels", lambda *_: recorder)
    work(pfdl.PartialDecorrelation(6, hidden=5), torch.randn(4, 6, requires_grad=True))
    assert recorder.asked == asked


@pytest.mark.parametrize(
    ("sharing", "center", "activation"), [("indexed", "none", "relu"), ("strict", "batch", "gelu")]
)
def test_penalty_and_fit_are_those_of_the_plain_path(sharing, center, activation):
    """On the CPU, on the GPU and, from test_interpreter.py, in the interpreter."""
    torch.manual_seed(0)
    options = {"hidden": 7, "sharing": sharing, "center": center, "activation": activation}
    fused = pfdl.PartialDecorrelation(5, 3.0, **options).to(DEVICE)
    plain = pfdl.PartialDecorrelation(5, 3.0, kernel="plain", **options).to(DEVICE)
    plain.load_state_dict(fused.state_dict())
    for _ in range(2):
        u = torch.randn(6, 5, device=DEVICE, requires_grad=True)
        gradient = torch.autograd.grad(fused(u), u)
        wanted = torch.autograd.grad(plain(u), u)
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-7)
        loss = plain.last.decorrelation_loss
        torch.testing.assert_close(fused.last.decorrelation_loss, loss, rtol=1e-4, atol=1e-8)
        torch.testing.assert_close(fused.last.r2, plain.last.r2, rtol=1e-4, atol=1e-5)
    for a, b in zip(fused.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_differentiating_g_twice():
    g = network(5, 4, "strict", "gelu")
    u = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)

    def call(u, weight):
        return torch.func.functional_call(g, {"first_weight": weight}, (u,))

    assert torch.autograd.gradgradcheck(call, (u, g.first_weight))


@pytest.mark.skipif(HAS_TRITON, reason="the fused penalty can be differentiated once only")
def test_the_penalty_has_second_derivatives():
    penalty = pfdl.PartialDecorrelation(5, hidden=4, activation="gelu").double()
    u = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(penalty.penalty, u)


RELU = torch.nn.ReLU()


def chosen(kernel="auto", device="cpu", dtype=torch.float32, hidden=(4,), activation=RELU, rows=3):
    return choose_kernels(kernel, Rows(torch.device(device), rows), dtype, hidden, activation)


@pytest.mark.skipif(INTERPRETING, reason="the interpreter changes which kernels are chosen")
class TestWhichKernelsAreChosen:
    def test_on_a_cpu_those_in_pytorch(self):
        assert chosen(dtype=torch.float64) is cpu

    def test_a_gpu_has_no_work_without_rows(self):
        assert chosen(device="cuda", rows=0) is cpu

    @pytest.mark.parametrize(
        "changes",
        [
            {"kernel": "plain"},
            {"hidden": (4, 4)},
            {"activation": torch.nn.Tanh()},
            {"device": "cuda", "dtype": torch.float64},
            {"device": "mps"},
        ],
    )
    def test_there_is_no_closed_form_of_the_rest(self, changes):
        assert chosen(**changes) is None

    def test_a_gpu_without_kernels_takes_autograd(self, monkeypatch):
        monkeypatch.setattr("pfdl.decorrelation.kernels.function._has_triton", lambda: False)
        assert chosen(device="cuda") is None


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
    inputs = [u, *g.parameters()]
    gradients = torch.autograd.grad(g(u).sum(), inputs)
    torch.testing.assert_close(gradients, tuple(map(torch.zeros_like, inputs)))


def test_the_plain_path_takes_a_batch_without_rows():
    g = network(6, 5, "strict", "relu", kernel="plain").float()
    assert g(torch.empty(0, 6)).shape == (0, 6)
