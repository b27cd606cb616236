"""Nothing poisons g: what cannot be used is refused before anything is updated."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from pfdl.decorrelation.finiteness import LateReport
from tests.decorrelation.small_batches import batch, make, same, snapshot
from tests.states import equal

PATHS = {"fused": {}, "plain": {"kernel": "plain"}, "several steps": {"fit_steps": 3}}


def assert_refused(penalty, features, message):
    """Assert that a call raises and leaves everything as it was."""
    before = copy.deepcopy(penalty.state_dict())
    last = penalty.last
    with pytest.raises(ValueError, match=message):
        penalty(features)
    assert equal(before, penalty.state_dict())
    assert penalty.last is last
    assert penalty(batch(seed=9)).isfinite()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("scale", [1e10, 1e18, 1e20, 1e38])
def test_features_whose_powers_overflow_are_refused(path, scale):
    penalty = make(**PATHS[path])
    penalty(batch())
    assert_refused(
        penalty,
        scale * batch(seed=2),
        r"L_decorr takes the fourth power .* overflows in torch.float32 above 4.3e\+09",
    )


def test_features_that_overflow_only_in_the_cast_are_refused_with_their_value():
    assert_refused(
        make(), batch().double() + 1e40, r"features\[0, 0\] is 1e\+40; .* above 4.3e\+09"
    )
    assert make().double()(batch().double() + 1e40).isfinite()


@pytest.mark.parametrize("scale", [1e3, 1e6, 1e9])
def test_large_features_that_do_not_overflow_are_used(scale):
    penalty = make(optimizer=partial(torch.optim.Adam, lr=1e-3))
    features = scale * torch.nn.functional.normalize(batch())
    for _ in range(3):
        assert penalty(features).isfinite()
    assert all(value.isfinite().all() for value in penalty.parameters())


@pytest.mark.parametrize("path", PATHS)
def test_a_gradient_of_g_that_overflows_is_refused(path):
    penalty = make(optimizer=partial(torch.optim.SGD, lr=0.1), **PATHS[path])
    with torch.no_grad():
        penalty.decomposition.layers[0].weight.mul_(1e17)
    refused_features = 1e3 * batch()
    before = snapshot(penalty)
    with pytest.raises(ValueError, match=r"its gradient overflows; this update of g was not made"):
        penalty(refused_features)
    assert same(before, snapshot(penalty))


def test_a_g_that_is_no_longer_finite_is_named_as_such():
    """As after a state whose settings ruin the next step of g, which no check of the state can
    foresee.
    """
    penalty = make()
    with torch.no_grad():
        penalty.decomposition.first_bias.fill_(torch.nan)
    with pytest.raises(ValueError, match="the weights of g are no longer finite"):
        penalty(batch())


@pytest.mark.parametrize(
    ("weights", "error", "says"),
    [
        ({1: 1.0, 2: float("nan")}, ValueError, "weight is nan"),
        ({1: 1.0, 2: -1.0}, ValueError, r"weight is -1\.0"),
        ({1: 1.0}, KeyError, "^2$"),
    ],
)
def test_a_schedule_that_fails_is_reported_before_g_is_updated(weights, error, says):
    penalty = make(weight=lambda fits: weights[fits])
    penalty(batch())
    before = snapshot(penalty)
    with pytest.raises(error, match=says):
        penalty(batch(seed=2))
    assert same(before, snapshot(penalty))
    assert penalty.completed_fits == 1


@pytest.mark.parametrize("path", PATHS)
def test_a_call_in_inference_mode_does_not_poison_later_training(path):
    penalty = make(**PATHS[path])
    twin = make(**PATHS[path])
    with torch.inference_mode():
        inside = penalty(batch())
    assert torch.equal(inside, twin(batch()))
    u = batch(seed=2).requires_grad_()
    v = batch(seed=2).requires_grad_()
    penalty(u).backward()
    twin(v).backward()
    assert torch.equal(u.grad, v.grad)
    assert same(snapshot(penalty), snapshot(twin))
    with torch.inference_mode():
        features = batch(seed=3)
    assert torch.equal(penalty(features), twin(batch(seed=3)))


@pytest.mark.parametrize("path", PATHS)
def test_the_gradient_does_not_reach_g_even_if_a_parent_asks_for_all_gradients(path):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Linear(6, 6)
            self.penalty = make(**PATHS[path])

    model = Model().requires_grad_(True)
    model.penalty(model.backbone(batch())).backward()
    assert model.backbone.weight.grad is not None
    assert all(value.requires_grad and value.grad is None for value in model.penalty.parameters())


@pytest.mark.parametrize("assign", [False, True])
def test_loading_by_assignment_keeps_g_and_its_optimiser_together(assign):
    penalty = make()
    source = make(seed=1)
    source(batch())
    penalty.load_state_dict(copy.deepcopy(source.state_dict()), assign=assign)
    for seed in range(3):
        assert torch.equal(penalty(batch(seed=seed)), source(batch(seed=seed)))
    assert same(snapshot(penalty), snapshot(source))


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_penalty_inside_a_checkpointed_part_is_refused(reentrant):
    penalty = make()
    backbone = nn.Linear(6, 6)
    with pytest.raises(RuntimeError, match="g would learn twice from one batch"):
        checkpoint(
            lambda x: penalty(backbone(x)), batch().requires_grad_(), use_reentrant=reentrant
        ).backward()
    assert penalty.completed_fits <= 1


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_fit_inside_a_checkpointed_part_is_refused(reentrant):
    penalty = make()
    backbone = nn.Linear(6, 6)

    def part(x):
        features = backbone(x)
        penalty.fit_step(features)
        return features.sum()

    with pytest.raises(RuntimeError, match="g would learn twice from one batch"):
        checkpoint(part, batch().requires_grad_(), use_reentrant=reentrant).backward()


def test_forward_mode_differentiation_is_refused():
    penalty = make()
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="no forward-mode derivative"):
        penalty(forward_ad.make_dual(batch(), torch.ones(12, 6)))
    assert penalty.completed_fits == 0


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e10, 1e20])
def test_an_update_is_skipped_by_a_flag_and_reported_later(value, monkeypatch):
    """What a GPU does, on a CPU, whose fused Adam reads the flag, too."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    penalty = make()
    report = LateReport()
    parameter, *_ = penalty.decomposition.parameters()
    parameter.grad = torch.ones_like(parameter)
    before = snapshot(penalty)
    features = batch()
    features[3, 4] = value
    report.step(penalty.optimizer, features, features.square().sum())
    assert same(before, snapshot(penalty))
    with pytest.raises(ValueError, match="That batch did not update g"):
        report.read()
    report.read()  # once only
    report.step(penalty.optimizer, batch(), torch.ones(()))
    assert not same(before, snapshot(penalty))
    assert not hasattr(penalty.optimizer, "found_inf")


def test_features_of_very_different_scales_are_warned_of_once():
    report = LateReport()
    optimizer = make().optimizer
    features = batch().abs() + 1
    report.step(optimizer, features, torch.ones(()))
    report.read()
    features[2, 3] = 1e6
    report.step(optimizer, features, torch.ones(()))
    with pytest.warns(UserWarning, match="more than 10000 times the mean of the others"):
        report.read()
    report.read()


@pytest.mark.parametrize(("factor", "is_wide"), [(1.001, True), (0.999, False)])
def test_wide_is_ten_thousand_times_the_mean_of_the_others(factor, is_wide):
    report = LateReport()
    features = torch.full((3, 5), 2.0)
    features[1, 4] = factor * 2e4
    report.step(make().optimizer, features, torch.ones(()))
    assert bool(report.flags(features.device)[1]) is is_wide


def test_only_a_fused_adam_skips_by_a_flag():
    assert LateReport.serves(make().optimizer)
    assert not LateReport.serves(make(optimizer=torch.optim.Adam).optimizer)
    assert not LateReport.serves(make(optimizer=torch.optim.SGD).optimizer)
