import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pfdl.decorrelation.functional import (
    decomposition_loss,
    decorrelation_loss,
    decorrelation_parts,
    standardize,
)
from pfdl.decorrelation.kernels import leave_one_out
from tests.decorrelation.reference import Algorithm1, naive_decomposition, naive_decorrelation_loss
from tests.decorrelation.small_batches import batch, make, same, snapshot

SGD = partial(torch.optim.SGD, lr=0.05)


def test_algorithm_1_step_by_step():
    torch.manual_seed(3)
    model, head = nn.Sequential(nn.Linear(4, 6), nn.Tanh()).double(), nn.Linear(6, 3).double()
    decorrelate = make(sharing="strict", optimizer=SGD).double()
    g = decorrelate.decomposition
    weights = [g.first_weight, g.first_bias, g.layers[0].weight, g.layers[0].bias]
    paper = Algorithm1(
        copy.deepcopy(model),
        copy.deepcopy(head),
        [w.detach() for w in weights],
        lr_g=0.05,
        lr_model=0.1,
    )
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    for _ in range(8):
        x, y = torch.randn(10, 4, dtype=torch.float64), torch.randint(3, (10,))
        loss_g, loss_decorr = paper.step(x, y)
        features = model(x)
        loss = F.cross_entropy(head(features), y) + decorrelate(features)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(decorrelate.last.decomposition_loss, loss_g)
        torch.testing.assert_close(decorrelate.last.decorrelation_loss, loss_decorr)
    for found, wanted in ((model, paper.model), (head, paper.head)):
        for a, b in zip(found.parameters(), wanted.parameters(), strict=True):
            torch.testing.assert_close(a, b)
    for a, b in zip(weights, paper.g_weights, strict=True):
        torch.testing.assert_close(a, b.view_as(a))


def test_each_step_leaves_the_other_side_alone():
    decorrelate, backbone = make(), nn.Linear(6, 6)
    features = backbone(batch())
    before = snapshot(decorrelate.decomposition)
    decorrelate.fit_step(features)
    assert not same(before, snapshot(decorrelate.decomposition))
    assert backbone.weight.grad is None
    before = snapshot(decorrelate.decomposition)
    decorrelate.penalty(features).backward()
    assert backbone.weight.grad.abs().sum() > 0
    assert same(before, snapshot(decorrelate.decomposition))
    assert all(parameter.grad is None for parameter in decorrelate.decomposition.parameters())


def test_gradient_of_the_penalty_is_the_naive_one_with_g_held_fixed():
    decorrelate = make(hidden=(5, 4), center="batch", weight=2.5).double()
    u = batch().double().requires_grad_()
    (gradient,) = torch.autograd.grad(decorrelate.penalty(u), u)
    slow = 2.5 * naive_decorrelation_loss(
        u, naive_decomposition(decorrelate.decomposition, u), "batch"
    )
    torch.testing.assert_close(gradient, torch.autograd.grad(slow, u)[0])


def test_forward_is_its_two_halves():
    whole, halves = make(), make()
    u = batch()
    loss = whole(u)
    halves.fit_step(u)
    assert torch.equal(loss, halves.penalty(u))
    assert same(snapshot(whole), snapshot(halves))


def test_several_fit_steps_are_so_many_single_ones():
    many, single = make(fit_steps=3), make()
    u = batch()
    last = many.fit_step(u)
    losses = [single.fit_step(u) for _ in range(3)]
    assert torch.equal(last, losses[-1])
    assert losses[0] > losses[1] > losses[2]
    assert same(snapshot(many), snapshot(single))
    assert (many.completed_fits, single.completed_fits) == (1, 3)


def test_eval_and_no_grad():
    decorrelate = make().eval()
    assert torch.equal(decorrelate(batch()), decorrelate.penalty(batch()))
    before = snapshot(decorrelate)
    decorrelate.fit_step(batch())
    assert not same(before, snapshot(decorrelate))
    before = snapshot(decorrelate.train())
    with torch.no_grad():
        decorrelate(batch())
    assert not same(before, snapshot(decorrelate))  # step 1 makes its own gradients


def linear_r2(u):
    """R² of each column regressed on the others, from the precision matrix."""
    covariance = torch.cov(u.T)
    return 1 - 1 / (covariance.diagonal() * covariance.inverse().diagonal())


def test_fitting_g_raises_its_r2_and_minimising_the_penalty_lowers_it():
    """The whole idea on a problem small enough to see: free features, minimised directly."""
    adam = partial(torch.optim.Adam, lr=1e-2)
    decorrelate = make(hidden=32, sharing="indexed", optimizer=adam, center="batch")
    u = batch(96)
    for _ in range(300):
        decorrelate.fit_step(u)
    # G is not linear, so it should explain more
    assert decorrelate.last.r2.mean() > linear_r2(u).mean()
    start = decorrelate.penalty(u).item()
    free = u.clone().requires_grad_()
    optimizer = torch.optim.Adam([free], lr=1e-2)
    for _ in range(300):
        optimizer.zero_grad()
        decorrelate(free).backward()
        optimizer.step()
    assert decorrelate.last.decorrelation_loss < 0.2 * start


def test_diagnostics_by_definition():
    decorrelate = make(weight=0.5)
    assert decorrelate.last.r2 is None
    assert decorrelate.last.summary() == {}
    u = batch()
    u[:, 2] = 1.5
    predicted = decorrelate.decomposition(u).detach()
    decorrelate(u)
    last = decorrelate.last
    torch.testing.assert_close(last.decomposition_loss, decomposition_loss(u, predicted))
    torch.testing.assert_close(
        last.decorrelation_loss, decorrelation_loss(u, decorrelate.decomposition(u)).detach()
    )
    expected = 1 - (u - predicted).square().sum(0) / (u - u.mean(0)).square().sum(0)
    varies = torch.arange(6) != 2
    torch.testing.assert_close(last.r2[varies], expected[varies])
    assert last.r2[2].isnan()
    summary = last.summary()
    assert summary["weight"] == 0.5
    explained = 1 - (u - predicted).square().sum() / (u - u.mean(0)).square().sum()
    assert summary["r2"] == pytest.approx(explained.item())
    assert not any(
        value.requires_grad for value in (last.decomposition_loss, last.decorrelation_loss, last.r2)
    )


def test_weight_schedule_and_warmup():
    u = batch()
    scheduled = make(weight=lambda fits: 0.1 * fits)
    weights = [(scheduled(u), scheduled.last.weight)[1] for _ in range(3)]
    assert weights == pytest.approx([0.1, 0.2, 0.3])
    warming = make(weight=2.0, warmup=4)
    weights = [(warming(u), warming.last.weight)[1] for _ in range(6)]
    assert weights == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0, 2.0])
    loss = warming.penalty(u)
    torch.testing.assert_close(loss, 2.0 * warming.last.decorrelation_loss)
    assert make(weight=3.0, warmup=10).penalty(u).item() == pytest.approx(
        0.3 * make().penalty(u).item(), rel=1e-5
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_features_under_autocast(dtype):
    half, full = make(), make()
    u = batch().to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype):
        loss = half(u)
    loss.backward()
    v = u.detach().float().requires_grad_()
    expected = full(v)
    expected.backward()
    assert torch.equal(loss, expected)
    assert u.grad.dtype == dtype
    assert torch.equal(u.grad, v.grad.to(dtype))
    assert same(snapshot(half), snapshot(full))


def test_losses_of_several_batches_may_be_summed_before_backward(monkeypatch):
    """A later fit changes g in place; an earlier penalty must still be differentiated as it was
    computed.
    """
    # Recomputed in backward: the harder case
    monkeypatch.setitem(leave_one_out.CHUNK_ELEMENTS, "cpu", 40)
    together, apart = make(optimizer=SGD, kernel="plain"), make(optimizer=SGD, kernel="plain")
    u, v = batch(seed=1).requires_grad_(), batch(seed=2).requires_grad_()
    (together(u) + together(v)).backward()
    summed = u.grad.clone(), v.grad.clone()
    u.grad = v.grad = None
    apart(u).backward()
    apart(v).backward()
    torch.testing.assert_close(summed, (u.grad, v.grad))


PATHS = {
    "fused": {},
    "plain": {"kernel": "plain"},
    "deep": {"hidden": (5, 4)},
    "indexed": {"sharing": "indexed"},
}


@pytest.mark.parametrize("center", ["none", "batch"])
@pytest.mark.parametrize("path", PATHS)
def test_the_last_call_knows_its_parts(path, center):
    penalty = make(center=center, **PATHS[path]).double()
    u = batch().double().requires_grad_()
    penalty(u)
    wanted = decorrelation_parts(u, penalty.decomposition(u))
    torch.testing.assert_close(penalty.last.level_part, wanted.level.detach())
    torch.testing.assert_close(penalty.last.covariance_part, wanted.covariance.detach())
    assert penalty.metrics()["level_part"] == penalty.last.level_part


@pytest.mark.parametrize("path", PATHS)
def test_standardised_features_enter_both_losses(path):
    penalty, twin = make(standardize=True, **PATHS[path]).double(), make(**PATHS[path]).double()
    u = batch().double().requires_grad_()
    v = standardize(u.detach()).requires_grad_()
    torch.testing.assert_close(penalty(u), twin(v))
    torch.testing.assert_close(penalty.last.r2, twin.last.r2)
    for found, wanted in zip(penalty.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(found, wanted)
    w = standardize(u)
    slow = naive_decorrelation_loss(w, naive_decomposition(twin.decomposition, w), "none")
    (wanted,) = torch.autograd.grad(slow, u)
    (found,) = torch.autograd.grad(penalty.penalty(u), u)
    torch.testing.assert_close(found, wanted)
    assert penalty.last.level_part < 1e-25
