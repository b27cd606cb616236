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
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh()).double()
    head = nn.Linear(6, 3).double()
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
        x = torch.randn(10, 4, dtype=torch.float64)
        y = torch.randint(3, (10,))
        loss_g, loss_decorr = paper.step(x, y)
        features = model(x)
        loss = F.cross_entropy(head(features), y) + decorrelate(features)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(decorrelate.last.decomposition_loss, loss_g)
        torch.testing.assert_close(decorrelate.last.decorrelation_loss, loss_decorr)
    assert_close_parameters(model, paper.model)
    assert_close_parameters(head, paper.head)
    for a, b in zip(weights, paper.g_weights, strict=True):
        torch.testing.assert_close(a, b.view_as(a))


def assert_close_parameters(found, wanted):
    for a, b in zip(found.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_each_step_leaves_the_other_side_alone():
    decorrelate = make()
    backbone = nn.Linear(6, 6)
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
    whole = make()
    halves = make()
    u = batch()
    loss = whole(u)
    halves.fit_step(u)
    assert torch.equal(loss, halves.penalty(u))
    assert same(snapshot(whole), snapshot(halves))


def test_several_fit_steps_are_so_many_single_ones():
    many = make(fit_steps=3)
    single = make()
    u = batch()
    last = many.fit_step(u)
    losses = [single.fit_step(u) for _ in range(3)]
    assert torch.equal(last, losses[-1])
    assert losses[0] > losses[1] > losses[2]
    assert same(snapshot(many), snapshot(single))
    assert (many.completed_fits, single.completed_fits) == (1, 3)


def test_in_eval_mode_a_call_is_the_second_step_alone():
    decorrelate = make().eval()
    before = snapshot(decorrelate)
    assert torch.equal(decorrelate(batch()), decorrelate.penalty(batch()))
    assert same(before, snapshot(decorrelate))


def test_a_fit_step_learns_in_eval_mode_too():
    decorrelate = make().eval()
    before = snapshot(decorrelate)
    decorrelate.fit_step(batch())
    assert not same(before, snapshot(decorrelate))


def test_without_gradients_a_call_still_fits_g():
    decorrelate = make()
    before = snapshot(decorrelate)
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


class TestDiagnostics:
    """Of a call on features of which the third is constant."""

    @pytest.fixture
    def u(self):
        u = batch()
        u[:, 2] = 1.5
        return u

    @pytest.fixture
    def called(self, u):
        penalty = make(weight=0.5)
        self.predicted = penalty.decomposition(u).detach()
        penalty(u)
        return penalty

    def test_before_the_first_call_there_are_none(self):
        last = make().last
        assert last.r2 is None
        assert last.explained is None
        assert last.summary() == {}

    def test_losses_are_those_of_both_steps(self, u, called):
        loss_g = decomposition_loss(u, self.predicted)
        loss_decorr = decorrelation_loss(u, called.decomposition(u)).detach()
        torch.testing.assert_close(called.last.decomposition_loss, loss_g)
        torch.testing.assert_close(called.last.decorrelation_loss, loss_decorr)

    def test_r2_is_one_minus_the_error_over_the_variance(self, u, called):
        errors = (u - self.predicted).square().sum(0)
        squares = (u - u.mean(0)).square().sum(0)
        varies = torch.arange(6) != 2
        torch.testing.assert_close(called.last.r2[varies], (1 - errors / squares)[varies])
        torch.testing.assert_close(called.last.explained, 1 - errors.sum() / squares.sum())

    def test_a_constant_feature_has_no_r2(self, called):
        assert called.last.r2[2].isnan()

    def test_the_summary_has_the_numbers(self, called):
        summary = called.last.summary()
        assert summary["weight"] == 0.5
        assert summary["r2"] == called.last.explained.item()
        assert summary["decorrelation_loss"] == called.last.decorrelation_loss.item()

    def test_they_carry_no_gradient(self, called):
        last = called.last
        for value in (last.decomposition_loss, last.decorrelation_loss, last.r2):
            assert not value.requires_grad


def weights_of(penalty, calls):
    """The weight that each call used."""
    u = batch()
    weights = []
    for _ in range(calls):
        penalty(u)
        weights.append(penalty.last.weight)
    return weights


def test_the_weight_may_follow_the_number_of_fits():
    scheduled = make(weight=lambda fits: 0.1 * fits)
    assert weights_of(scheduled, 3) == pytest.approx([0.1, 0.2, 0.3])


def test_the_second_step_by_itself_has_the_weight_of_the_fits_so_far():
    scheduled = make(weight=lambda fits: 1.0 + fits)
    for _ in range(2):
        scheduled.fit_step(batch())
    scheduled.penalty(batch())
    assert scheduled.last.weight == 3.0


def test_a_warm_up_raises_the_weight_linearly_to_its_value():
    warming = make(weight=2.0, warmup=4)
    assert weights_of(warming, 6) == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0, 2.0])


def test_the_penalty_is_the_weight_times_the_loss():
    penalty = make(weight=2.0)
    loss = penalty(batch())
    torch.testing.assert_close(loss, 2.0 * penalty.last.decorrelation_loss)


def test_before_the_first_fit_a_warm_up_has_the_weight_of_its_first_call():
    u = batch()
    warming = make(weight=3.0, warmup=10).penalty(u)
    torch.testing.assert_close(warming, 0.3 * make().penalty(u))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_features_under_autocast(dtype):
    half = make()
    full = make()
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
    together = make(optimizer=SGD, kernel="plain")
    apart = make(optimizer=SGD, kernel="plain")
    u = batch(seed=1).requires_grad_()
    v = batch(seed=2).requires_grad_()
    loss = together(u) + together(v)
    summed = torch.autograd.grad(loss, (u, v))
    (of_u,) = torch.autograd.grad(apart(u), u)
    (of_v,) = torch.autograd.grad(apart(v), v)
    torch.testing.assert_close(summed, (of_u, of_v))


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


def standardising_and_twin(path):
    """A penalty that standardises, and one that does not."""
    return make(standardize=True, **PATHS[path]).double(), make(**PATHS[path]).double()


@pytest.mark.parametrize("path", PATHS)
def test_standardised_features_enter_both_losses(path):
    penalty, twin = standardising_and_twin(path)
    u = batch().double().requires_grad_()
    torch.testing.assert_close(penalty(u), twin(standardize(u.detach()).requires_grad_()))
    torch.testing.assert_close(penalty.last.r2, twin.last.r2)
    assert_close_parameters(penalty, twin)
    assert penalty.last.level_part < 1e-25


@pytest.mark.parametrize("path", PATHS)
def test_the_gradient_passes_through_the_standardisation(path):
    penalty, twin = standardising_and_twin(path)
    u = batch().double().requires_grad_()
    v = standardize(u)
    slow = naive_decorrelation_loss(v, naive_decomposition(twin.decomposition, v), "none")
    (wanted,) = torch.autograd.grad(slow, u)
    (gradient,) = torch.autograd.grad(penalty.penalty(u), u)
    torch.testing.assert_close(gradient, wanted)
