from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings, strategies as st

import pfdl
from pfdl.decorrelation.kernels import leave_one_out, torch_closed_form
from tests.decorrelation.reference import naive_decomposition

SHARINGS = ("indexed", "strict")


@contextmanager
def chunks_of(elements):
    """Let the plain path work on so many numbers at a time, and the closed form likewise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(leave_one_out.CHUNK_ELEMENTS, "cpu", elements)
        patch.setattr(torch_closed_form, "GROUP_ELEMENTS", elements)
        patch.setattr(torch_closed_form, "ROWS", 1 + elements % 4)
        yield


def make(p, hidden=7, seed=0, **options):
    torch.manual_seed(seed)
    return pfdl.FeatureDecomposition(p, hidden, **options).double()


def values_and_gradients(function, g, u):
    u = u.clone().requires_grad_()
    out = function(u)
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    inputs = [u, *g.parameters()]
    return out, torch.autograd.grad((weights * out).sum(), inputs)


def assert_same(g, u):
    out, gradients = values_and_gradients(g, g, u)
    expected, expected_gradients = values_and_gradients(lambda u: naive_decomposition(g, u), g, u)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)
    for found, wanted in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)


@settings(max_examples=60)
@given(
    n=st.integers(1, 9),
    p=st.integers(2, 40),
    hidden=st.lists(st.integers(1, 6), max_size=3),
    sharing=st.sampled_from(SHARINGS),
    activation=st.sampled_from(["relu", "gelu", "tanh", "identity"]),
    elements=st.sampled_from([1, 50, 400, 10**6]),
    kernel=st.sampled_from(["auto", "plain"]),
)
def test_agrees_with_leaving_out_each_coordinate(
    n, p, hidden, sharing, activation, elements, kernel
):
    g = make(p, hidden, sharing=sharing, activation=activation, kernel=kernel)
    with chunks_of(elements):
        assert_same(g, torch.randn(n, p, dtype=torch.float64))


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("hidden", [(8, 5), (8,)])
def test_no_feature_sees_itself_not_even_by_rounding(sharing, hidden):
    g = make(37, hidden, sharing=sharing, activation="gelu").float()
    u = torch.randn(3, 37) * 100
    jacobian = torch.autograd.functional.jacobian(lambda row: g(row[None])[0], u[0])
    assert torch.equal(jacobian.diagonal(), torch.zeros(37))
    others = jacobian[~torch.eye(37, dtype=torch.bool)]
    assert others.abs().min() > 0


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("hidden", [(8, 5), (8,)])
def test_a_feature_changes_the_predictions_of_all_others_and_not_its_own(sharing, hidden):
    g = make(37, hidden, sharing=sharing, activation="gelu").float()
    u = torch.randn(3, 37) * 100
    changed = u.clone()
    changed[:, 11] = 1e6
    is_same = (g(u) == g(changed)).all(0)
    assert is_same.nonzero().tolist() == [[11]]


@pytest.mark.parametrize("sharing", SHARINGS)
def test_new_weights_are_drawn_as_those_of_a_linear_layer(sharing):
    """Uniformly up to 1/√(number of inputs), of which there are p − 1."""
    g = make(26, 400, sharing=sharing)
    for values in (g.first_weight, g.first_bias):
        assert values.abs().max() <= 1 / 5
        assert values.abs().max() > 0.99 / 5


@pytest.mark.parametrize("sharing", SHARINGS)
def test_gradcheck(sharing):
    g = make(4, (2, 2), sharing=sharing, activation="tanh")
    u = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in g.named_parameters()]

    def call(u, *values):
        return torch.func.functional_call(g, dict(zip(names, values, strict=True)), (u,))

    assert torch.autograd.gradcheck(call, (u, *g.parameters()))
    assert torch.autograd.gradgradcheck(call, (u, *g.parameters()))


def test_hand_computed_two_by_three():
    """Strict g(a, b) = relu(2a − b + 1) · 3 + 0.5 on two rows."""
    g = pfdl.FeatureDecomposition(3, 1, sharing="strict")
    with torch.no_grad():
        g.first_weight.copy_(torch.tensor([[2.0, -1.0]]))
        g.first_bias.fill_(1.0)
        g.layers[0].weight.fill_(3.0)
        g.layers[0].bias.fill_(0.5)
    u = torch.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 1.0]])
    # row 1: (2,3)→2, (1,3)→0, (1,2)→1;  row 2: (−1,1)→−2→0, (0,1)→0, (0,−1)→2
    torch.testing.assert_close(g(u), torch.tensor([[6.5, 0.5, 3.5], [0.5, 0.5, 6.5]]))


def test_indexed_bias_tells_the_features_apart_and_strict_does_not():
    equal = torch.ones(1, 6)
    assert make(6, sharing="indexed").float()(equal).unique().numel() == 6
    strict = make(6, sharing="strict").float()(equal)
    torch.testing.assert_close(strict, strict[:, :1].expand(1, 6))


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"num_features": 0}, ValueError, "num_features is 0"),
        ({"num_features": 1}, ValueError, "num_features is 1"),
        ({"num_features": 2.0}, TypeError, "num_features is 2.0"),
        ({"num_features": True}, TypeError, "num_features is True"),
        ({"num_features": 4, "hidden": 0}, ValueError, "hidden is 0"),
        ({"num_features": 4, "hidden": (8, -1)}, ValueError, "hidden is -1"),
        (
            {"num_features": 4, "sharing": "none"},
            ValueError,
            "sharing is 'none'; choose one of 'indexed', 'strict'",
        ),
        ({"num_features": 4, "activation": "swish"}, ValueError, "activation is 'swish'"),
        ({"num_features": 4, "kernel": "fast"}, ValueError, "kernel is 'fast'; choose one of"),
    ],
)
def test_bad_arguments_are_named(arguments, error, says):
    with pytest.raises(error, match=says):
        pfdl.FeatureDecomposition(**arguments)
