"""Both steps from a CUDA graph against the same steps one by one; needs a GPU."""

import copy

import pytest
import torch

import pfdl
from pfdl._internal.cuda_graphs import CALLS_BEFORE
from tests.decorrelation.small_batches import same, snapshot

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")


def pair(**options):
    torch.manual_seed(0)
    captured = pfdl.PartialDecorrelation(33, hidden=20, **options).cuda()
    stepwise = copy.deepcopy(captured)
    stepwise.captured.run = lambda work, inputs, settings=(): work(*inputs)
    return captured, stepwise


def batch(seed, n=24):
    return torch.randn(n, 33, generator=torch.Generator().manual_seed(seed)).cuda().requires_grad_()


def assert_same_calls(captured, stepwise, calls):
    for seed in range(calls):
        assert_same(captured, stepwise, batch(seed))


def assert_same(captured, stepwise, u):
    v = u.detach().clone().requires_grad_()
    a = captured(u)
    b = stepwise(v)
    assert torch.equal(a, b)
    a.backward()
    b.backward()
    assert torch.equal(u.grad, v.grad)
    assert torch.equal(captured.last.r2, stepwise.last.r2)
    assert captured.last.summary() == stepwise.last.summary()
    assert captured.completed_fits == stepwise.completed_fits
    assert same(captured.parameters(), stepwise.parameters())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"center": "batch", "fit_steps": 2, "warmup": 5},
        {"sharing": "indexed"},
        {"standardize": True, "sharing": "indexed"},
    ],
    ids=str,
)
def test_bit_for_bit_the_same(options):
    captured, stepwise = pair(**options)
    assert_same_calls(captured, stepwise, CALLS_BEFORE + 5)
    assert len(captured.captured._records) == 1
    for seed in range(3):
        assert_same(captured, stepwise, batch(seed, n=10))  # a last batch of another size
        assert_same(captured, stepwise, batch(seed))


def test_a_new_learning_rate_and_a_loaded_state_are_noticed():
    captured, stepwise = pair()
    assert_same_calls(captured, stepwise, CALLS_BEFORE + 2)
    for penalty in (captured, stepwise):
        penalty.optimizer.param_groups[0]["lr"] = 0.1
    assert_same_calls(captured, stepwise, CALLS_BEFORE + 2)
    state = copy.deepcopy(captured.state_dict())
    captured(batch(50))
    captured.load_state_dict(state)
    assert_same_calls(captured, stepwise, CALLS_BEFORE + 2)


def test_losses_may_be_summed_before_backward():
    captured, stepwise = pair()
    assert_same_calls(captured, stepwise, CALLS_BEFORE + 1)
    u = batch(20)
    v = batch(21)
    (captured(u) + captured(v)).backward()
    a = batch(20)
    b = batch(21)
    stepwise(a).backward()
    stepwise(b).backward()
    assert torch.equal(u.grad, a.grad)
    assert torch.equal(v.grad, b.grad)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e18, 1e20])
@pytest.mark.parametrize("calls", [0, CALLS_BEFORE + 2])
def test_a_batch_that_is_not_finite_updates_nothing_and_is_reported_later(calls, value):
    penalty, _ = pair()
    for seed in range(calls):
        penalty(batch(seed))
    before = snapshot(penalty)
    bad = batch(30).detach()
    bad[3, 4] = value
    assert not penalty(bad.requires_grad_()).isfinite()
    assert same(before, penalty.parameters())
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match=r"earlier batch had a NaN.*did not update g"):
        penalty(batch(31))
    assert penalty(batch(32)).isfinite()
    assert not same(before, penalty.parameters())
