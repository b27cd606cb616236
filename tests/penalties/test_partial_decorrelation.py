import copy
import io
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pfdl
from pfdl.functional import decomposition_loss, decorrelation_loss
from tests.reference import Algorithm1, naive_decomposition, naive_decorrelation_loss

SGD = partial(torch.optim.SGD, lr=0.05)


def make(p=6, seed=0, **options):
    torch.manual_seed(seed)
    return pfdl.PartialDecorrelation(p, **{"hidden": 5, **options})


def batch(n=12, p=6, seed=1):
    mixing = torch.randn(p, p, generator=torch.Generator().manual_seed(7))
    return torch.relu(torch.randn(n, p, generator=torch.Generator().manual_seed(seed)) @ mixing)


def snapshot(module):
    return [value.detach().clone() for value in module.parameters()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_algorithm_1_step_by_step():
    torch.manual_seed(3)
    model, head = nn.Sequential(nn.Linear(4, 6), nn.Tanh()).double(), nn.Linear(6, 3).double()
    decorrelate = make(sharing="strict", optimizer=SGD).double()
    g = decorrelate.decomposition
    weights = [g.first_weight, g.first_bias, g.layers[0].weight, g.layers[0].bias]
    paper = Algorithm1(
        copy.deepcopy(model), copy.deepcopy(head), [w.detach() for w in weights], lr_g=0.05, lr_model=0.1
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
    for found, wanted in [
        (model, paper.model),
        (head, paper.head),
    ]:
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
    decorrelate = make(hidden=(5, 4), form="pairwise", center="batch", weight=2.5).double()
    u = batch().double().requires_grad_()
    (gradient,) = torch.autograd.grad(decorrelate.penalty(u), u)
    slow = 2.5 * naive_decorrelation_loss(u, naive_decomposition(decorrelate.decomposition, u), "pairwise", "batch")
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
    before = snapshot(decorrelate)
    expected = decorrelate.penalty(batch())
    assert torch.equal(decorrelate(batch()), expected)
    assert same(before, snapshot(decorrelate))
    decorrelate.train()
    with torch.no_grad():
        decorrelate(batch())
    assert not same(before, snapshot(decorrelate))  # step 1 makes its own gradients


def linear_r2(u):
    """R² of each column regressed on the others, from the precision matrix."""
    covariance = torch.cov(u.T)
    return 1 - 1 / (covariance.diagonal() * covariance.inverse().diagonal())


def test_fitting_g_raises_its_r2_and_minimising_the_penalty_lowers_it():
    """The whole idea on a problem small enough to see: free features, minimised directly."""
    decorrelate = make(hidden=32, optimizer=partial(torch.optim.Adam, lr=1e-2), center="batch", form="pairwise")
    u = batch(256)
    for _ in range(300):
        decorrelate.fit_step(u)
    assert decorrelate.last.r2.mean() > linear_r2(u).mean()  # g is not linear, so it should explain more
    start = decorrelate.penalty(u).item()
    free = u.clone().requires_grad_()
    optimizer = torch.optim.Adam([free], lr=1e-2)
    for _ in range(300):
        optimizer.zero_grad()
        decorrelate(free).backward()
        optimizer.step()
    assert decorrelate.last.decorrelation_loss < 0.1 * start


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
    torch.testing.assert_close(last.decorrelation_loss, decorrelation_loss(u, decorrelate.decomposition(u)).detach())
    expected = 1 - (u - predicted).square().sum(0) / (u - u.mean(0)).square().sum(0)
    varies = torch.arange(6) != 2
    torch.testing.assert_close(last.r2[varies], expected[varies])
    assert last.r2[2].isnan()
    summary = last.summary()
    assert summary["weight"] == 0.5
    explained = 1 - (u - predicted).square().sum() / (u - u.mean(0)).square().sum()
    assert summary["r2"] == pytest.approx(explained.item())
    assert not any(value.requires_grad for value in (last.decomposition_loss, last.decorrelation_loss, last.r2))


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
    assert make(weight=3.0, warmup=10).penalty(u).item() == pytest.approx(0.3 * make().penalty(u).item(), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_features_under_autocast(dtype):
    half, full = make(form="pairwise"), make(form="pairwise")
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


def test_losses_of_several_batches_may_be_summed_before_backward():
    """A later fit changes g in place; an earlier penalty must still be differentiated as it was computed."""
    together, apart = make(optimizer=SGD), make(optimizer=SGD)
    together.decomposition.max_elements = 40  # recomputed in backward: the harder case
    u, v = batch(seed=1).requires_grad_(), batch(seed=2).requires_grad_()
    (together(u) + together(v)).backward()
    summed = u.grad.clone(), v.grad.clone()
    u.grad = v.grad = None
    apart(u).backward()
    apart(v).backward()
    torch.testing.assert_close(summed, (u.grad, v.grad))


def run(decorrelate, model, optimizer, seeds):
    for seed in seeds:
        optimizer.zero_grad()
        decorrelate(model(batch(seed=seed))).backward()
        optimizer.step()


def saved(parts):
    buffer = io.BytesIO()
    torch.save([part.state_dict() for part in parts], buffer)
    buffer.seek(0)
    return buffer


def test_resumed_training_is_bit_for_bit_the_uninterrupted_one():
    def fresh():
        torch.manual_seed(5)
        model = nn.Linear(6, 6)
        return make(warmup=7), model, torch.optim.Adam(model.parameters(), 1e-2)

    whole = fresh()
    run(*whole, range(10))
    first = fresh()
    run(*first, range(4))
    checkpoint = saved(first)
    second = fresh()
    second[0](batch(seed=99))  # a used module, so that loading has something to overwrite
    for part, state in zip(second, torch.load(checkpoint, weights_only=True), strict=True):
        part.load_state_dict(state)
    run(*second, range(4, 10))
    assert same(snapshot(whole[0]), snapshot(second[0]))
    assert same(snapshot(whole[1]), snapshot(second[1]))
    assert second[0].completed_fits == 10


def test_loading_shares_nothing_with_the_source():
    source, twin = make(), make(seed=1)
    source(batch())
    twin.load_state_dict(source.state_dict())
    before = copy.deepcopy(source.optimizer.state_dict())
    twin(batch(seed=2))
    for key, value in source.optimizer.state_dict()["state"][0].items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(before["state"][0][key]))


def test_deepcopy_goes_its_own_way():
    original = make()
    original(batch())
    twin = copy.deepcopy(original)
    before = snapshot(original)
    twin(batch(seed=2))
    assert same(before, snapshot(original))
    original(batch(seed=2))
    assert same(snapshot(twin), snapshot(original))


def test_moving_takes_the_optimiser_along():
    moved, stayed = make(), make().double()
    moved(batch())
    stayed(batch().double())
    moved.double()
    moments = [value for state in moved.optimizer.state.values() for value in (state["exp_avg"], state["exp_avg_sq"])]
    assert moments
    assert all(moment.dtype == torch.float64 for moment in moments)
    moved(batch(seed=2).double())
    stayed(batch(seed=2).double())
    for a, b in zip(moved.parameters(), stayed.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
def test_on_the_gpu_as_on_the_cpu():
    here, there = make(), make().cuda()
    for seed in range(3):
        u = batch(seed=seed)
        torch.testing.assert_close(there(u.cuda()).cpu(), here(u), rtol=1e-4, atol=1e-6)


def test_inside_a_compiled_training_step():
    eager, compiled = make(), make()
    torch.manual_seed(2)
    backbone = nn.Linear(6, 6)

    def step(penalty, x):
        return penalty(torch.relu(backbone(x))) + 1

    wrapped = torch.compile(lambda x: step(compiled, x), backend="eager")
    for seed in range(3):
        torch.testing.assert_close(wrapped(batch(seed=seed)), step(eager, batch(seed=seed)))
    torch.testing.assert_close(snapshot(compiled), snapshot(eager))


def test_a_model_optimiser_that_holds_g_does_not_move_it():
    decorrelate = make()
    optimizer = torch.optim.AdamW(decorrelate.parameters(), lr=1.0, weight_decay=1.0)
    u = batch().requires_grad_()
    decorrelate(u).backward()
    before = snapshot(decorrelate)
    optimizer.step()
    assert same(before, snapshot(decorrelate))


def non_finite(value):
    u = batch()
    u[3, 4] = value
    return u


@pytest.mark.parametrize(
    ("features", "error", "says"),
    [
        (torch.zeros(1, 6), ValueError, "batch of 1; a correlation needs at least 2"),
        (torch.zeros(0, 6), ValueError, "batch of 0"),
        (torch.zeros(4, 5), ValueError, "5 columns but num_features is 6"),
        (torch.zeros(4, 6, 2), ValueError, r"shape \(4, 6, 2\)"),
        (torch.zeros(4, 6, dtype=torch.long), TypeError, r"int64; give floating-point values, .*\.float\(\)"),
        (non_finite(float("nan")), ValueError, r"features\[3, 4\] is nan"),
        (non_finite(float("inf")), ValueError, r"features\[3, 4\] is inf"),
        (None, TypeError, "features is a NoneType"),
    ],
)
@pytest.mark.parametrize("method", ["__call__", "fit_step", "penalty"])
def test_bad_features_are_named_before_anything_is_updated(features, error, says, method):
    decorrelate = make()
    before = snapshot(decorrelate)
    with pytest.raises(error, match=says):
        getattr(decorrelate, method)(features)
    assert same(before, snapshot(decorrelate))
    assert decorrelate.completed_fits == 0
    assert not decorrelate.optimizer.state


def test_finiteness_need_not_be_checked():
    assert make(check_finite=False).penalty(non_finite(float("nan"))).isnan()


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"weight": -1.0}, ValueError, "weight is -1.0"),
        ({"weight": float("nan")}, ValueError, "weight is nan"),
        ({"weight": "big"}, TypeError, "weight is 'big'"),
        ({"form": "x"}, ValueError, "form is 'x'"),
        ({"center": "x"}, ValueError, "center is 'x'"),
        ({"sharing": "x"}, ValueError, "sharing is 'x'"),
        ({"fit_steps": 0}, ValueError, "fit_steps is 0"),
        ({"warmup": -1}, ValueError, "warmup is -1"),
        ({"p": 0}, ValueError, "num_features is 0"),
        ({"p": 1}, ValueError, "num_features is 1"),
    ],
)
def test_bad_options_are_named(options, error, says):
    with pytest.raises(error, match=says):
        make(**options)


def test_a_schedule_that_turns_negative_is_named_before_the_update():
    decorrelate = make(weight=lambda fits: -1.0)
    before = snapshot(decorrelate)
    with pytest.raises(ValueError, match=r"weight is -1.0"):
        decorrelate(batch())
    assert same(before, snapshot(decorrelate))
