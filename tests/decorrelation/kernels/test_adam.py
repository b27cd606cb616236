"""The step of Adam that the GPU takes, against PyTorch's in float64; on a GPU or in Triton's
interpreter.
"""

import copy

import pytest
import torch

pytest.importorskip("triton")
from pfdl.decorrelation.kernels.triton_adam import can_step, take_step
from tests.decorrelation.kernels.conftest import DEVICE, INTERPRETING, needs_triton
from tests.decorrelation.small_batches import same

KINDS = {
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "adam with decay": (torch.optim.Adam, {"lr": 0.1, "betas": (0.0, 0.99), "weight_decay": 0.3}),
    "adamw": (torch.optim.AdamW, {"lr": 0.1, "eps": 1e-3, "weight_decay": 0.2}),
}


def parameters():
    torch.manual_seed(0)
    shapes = [(3, 7), (3,), (1, 3), (1,)]
    return [torch.nn.Parameter(torch.randn(shape, device=DEVICE)) for shape in shapes]


def gradients_of(values):
    return [torch.randn_like(value) * 3 for value in values]


def stepped(kind, **options):
    """Return an optimiser that has taken one step, and its parameters."""
    values = parameters()
    make, settings = KINDS[kind]
    optimizer = make(values, **settings, fused=True, **options)
    for value, gradient in zip(values, gradients_of(values), strict=True):
        value.grad = gradient
    optimizer.step()
    optimizer.zero_grad()
    return optimizer, values


def in_float64(kind, optimizer, values):
    """Return PyTorch's own optimiser of copies in double precision, in the same state."""
    twins = [torch.nn.Parameter(value.detach().double().cpu()) for value in values]
    make, settings = KINDS[kind]
    reference = make(twins, **settings)
    reference.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for state in reference.state.values():
        state.update({name: value.cpu() for name, value in state.items()})
    return reference, twins


def assert_near(found, wanted):
    torch.testing.assert_close(found.double().cpu(), wanted.double(), rtol=2e-6, atol=1e-7)


@pytest.fixture
def short_programs(monkeypatch):
    if INTERPRETING:  # several programs for a parameter
        monkeypatch.setattr("pfdl.decorrelation.kernels.triton_adam.LENGTH", 4)


@needs_triton
@pytest.mark.usefixtures("short_programs")
@pytest.mark.parametrize("kind", KINDS)
def test_triton_takes_the_step_of_pytorch(kind):
    optimizer, values = stepped(kind)
    reference, twins = in_float64(kind, optimizer, values)
    seen = torch.zeros((), device=DEVICE)
    for _ in range(3):
        gradients = gradients_of(values)
        for twin, gradient in zip(twins, gradients, strict=True):
            twin.grad = gradient.double().cpu()
        reference.step()
        take_step(optimizer, values, gradients, torch.ones(5, device=DEVICE), seen)
    for value, twin in zip(values, twins, strict=True):
        assert_near(value.detach(), twin.detach())
        for name, wanted in reference.state[twin].items():
            assert_near(optimizer.state[value][name], wanted)
    assert seen == 0


@needs_triton
@pytest.mark.usefixtures("short_programs")
@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e30])
@pytest.mark.parametrize("place", ["gradient", "loss"])
def test_triton_skips_what_is_not_finite(place, value):
    optimizer, values = stepped("adam")
    state = copy.deepcopy(optimizer.state_dict())
    before = [value.detach().clone() for value in values]
    gradients = gradients_of(values)
    unexplained = torch.ones(5, device=DEVICE)
    seen = torch.zeros((), device=DEVICE)
    if place == "gradient":
        gradients[0][2, 6] = value  # 1e30: its square is not finite
    else:
        unexplained[4] = value if value != 1e30 else -torch.inf
    take_step(optimizer, values, gradients, unexplained, seen)
    assert seen == 1
    torch.testing.assert_close(optimizer.state_dict(), state, rtol=0, atol=0)
    assert same(values, before)
    take_step(optimizer, values, gradients_of(values), torch.ones(5, device=DEVICE), seen)
    assert seen == 1  # never lowered
    assert not any(map(torch.equal, values, before))


def test_a_fused_adam_that_has_made_a_step_is_served():
    assert can_step(*stepped("adam"))


def with_hook():
    optimizer, values = stepped("adam")
    optimizer.register_step_post_hook(lambda *_: None)
    return optimizer, values


def with_other_parameters():
    optimizer, values = stepped("adam")
    return optimizer, values[:3]


def before_the_first_step():
    values = parameters()
    return torch.optim.Adam(values, fused=True), values


def another_optimiser():
    values = parameters()
    return torch.optim.SGD(values), values


def in_two_groups():
    values = parameters()
    return torch.optim.Adam([{"params": values[:2]}, {"params": values[2:]}]), values


def in_double_precision():
    values = [torch.nn.Parameter(value.detach().double()) for value in parameters()]
    optimizer = torch.optim.Adam(values, fused=True)
    for value in values:
        value.grad = torch.ones_like(value)
    optimizer.step()
    return optimizer, values


@pytest.mark.parametrize(
    "make",
    [
        lambda: stepped("adam", amsgrad=True),
        lambda: stepped("adam", maximize=True),
        with_hook,
        with_other_parameters,
        before_the_first_step,
        another_optimiser,
        in_two_groups,
        in_double_precision,
    ],
)
def test_other_optimisers_take_their_steps_themselves(make):
    assert not can_step(*make())
