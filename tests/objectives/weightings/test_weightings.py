"""Every weighting against a transcription of its equation, written loop by loop."""

import math
import warnings

import pytest
import torch

from pfdl._internal.cuda_graphs import Captured
from pfdl.objectives import Objective
from pfdl.objectives.weightings import CNBB, DWR, BatchDWR, StableNet, Uniform
from pfdl.objectives.weightings.cnbb import balance_gradient
from pfdl.objectives.weightings.dwr import decorrelating_weights, dwr_loss_and_gradient
from pfdl.objectives.weightings.stablenet import dependence_gradient, draw_maps, fourier_features
from tests.tabular.reference import dwr_loss_with_copies


def features(n=12, p=4, seed=0):
    mixing = torch.randn(p, p, generator=torch.Generator().manual_seed(99))
    return torch.tanh(torch.randn(n, p, generator=torch.Generator().manual_seed(seed)) @ mixing)


def weights_of(n=12, seed=5):
    return 0.2 + torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def naive_balance(f, w):
    n, p = f.shape
    total = f.new_zeros(())
    for j in range(p):
        on = [i for i in range(n) if f[i, j] > 0]
        off = [i for i in range(n) if f[i, j] <= 0]
        if not on or not off:
            continue
        others = [k for k in range(p) if k != j]
        treated = sum(w[i] * f[i, others] for i in on) / sum(w[i] for i in on)
        untreated = sum(w[i] * f[i, others] for i in off) / sum(w[i] for i in off)
        total = total + (treated - untreated).square().sum()
    return total


def naive_dependence(mapped, w):
    total = mapped.new_zeros(())
    for z in mapped:
        for j in range(z.shape[1]):
            for k in range(z.shape[1]):
                if j != k:
                    mean_j = (w * z[:, j]).sum()
                    mean_k = (w * z[:, k]).sum()
                    total = total + (w * (z[:, j] - mean_j) * (z[:, k] - mean_k)).sum() ** 2
    return total


@pytest.mark.parametrize("p", [4, 20])
def test_the_gradient_of_dependence_is_that_of_autograd(p):
    mapped = torch.randn(2, 12, p, dtype=torch.float64)
    logits = weights_of().requires_grad_()
    weights = logits.softmax(0)
    (expected,) = torch.autograd.grad(naive_dependence(mapped, weights), logits, retain_graph=True)
    (found,) = torch.autograd.grad(weights, logits, dependence_gradient(mapped, weights.detach()))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("p", [4, 12, 20])
def test_dwr_by_samples_and_by_features_is_the_loop(p):
    x = features(12, p).double()
    w = weights_of().requires_grad_()
    loss, gradient = dwr_loss_and_gradient(x, w.detach())
    expected = dwr_loss_with_copies(x, w)
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(gradient, *torch.autograd.grad(expected, w))


def test_the_gradient_of_balance_is_that_of_autograd():
    f = features(15, 6).double()
    w = weights_of(15).requires_grad_()
    f[:, 2] = f[:, 2].abs() + 0.1  # always on: nothing to compare
    torch.testing.assert_close(
        balance_gradient(f, w.detach()), *torch.autograd.grad(naive_balance(f, w), w)
    )


@pytest.mark.parametrize("batches", [1, 3])
def test_stablenet_is_sgd_on_its_loss(batches):
    weighting = StableNet(steps=6, learning_rate=5.0, functions=2, balance=0.5)
    torch.manual_seed(3)
    for batch in range(batches):
        u = features(12, 5, seed=batch)
        memory = weighting.memory_features.clone(), weighting.memory_weights.clone()
        state = torch.get_rng_state()
        found = weighting(u)
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        logits = torch.ones(12, requires_grad=True)
        optimizer = torch.optim.SGD([logits], lr=5.0, momentum=0.9)
        for step, drawn in enumerate(zip(*draw_maps(u, 2, 6), strict=True)):
            optimizer.param_groups[0]["lr"] = 5.0 if step < 3 else 0.5
            together = torch.cat([u, memory[0]]) if memory[0].numel() else u
            everyone = torch.cat([logits, memory[1]]).softmax(0)
            mapped = fourier_features(together, *drawn)
            loss = naive_dependence(mapped, everyone) / 0.5 + logits.softmax(0).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.testing.assert_close(found, 12 * logits.detach().softmax(0), atol=1e-5, rtol=1e-4)
        assert torch.equal(torch.get_rng_state(), after)


def test_cnbb_is_projected_gradient_descent_on_its_loss():
    f = features(20, 5).double()
    weights = torch.full((20,), 1 / 20, dtype=torch.float64)
    for _ in range(6):
        weights.requires_grad_()
        (gradient,) = torch.autograd.grad(
            naive_balance(f, weights) + 0.01 * weights.square().sum(), weights
        )
        weights = (weights.detach() - 0.002 * (gradient - gradient.mean())).abs()
        weights = weights / weights.sum()
    found = CNBB(steps=6, learning_rate=0.002, size_weight=0.01)(f.float())
    torch.testing.assert_close(found, 20 * weights.float(), atol=1e-5, rtol=1e-4)
    assert found.max() > 1.1


@pytest.mark.parametrize(
    ("shape", "rank", "scale", "first", "share"),
    [
        ((32, 16), None, None, [0.760763, 0.732250, 1.655647, 0.595734], 0.809),
        ((64, 128), None, None, [0.962135, 1.344113, 1.897117, 1.413774], 0.497),
        ((64, 128), 3, None, [0.200416, 2.082545, 0.624909, 0.495044], 0.650),
        ((64, 128), None, 0.1, [0.910005, 1.633691, 1.106307, 0.878210], 0.971),
    ],
)
def test_cnbb_gives_the_weights_of_its_public_reimplementation(shape, rank, scale, first, share):
    """First weights and effective share by CNBBLoss (causal-semantic-generative-model,
    methods/cnbb.py, defaults).
    """
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(shape[0], rank or shape[1], generator=generator)
    mixed = drawn @ torch.randn(rank, shape[1], generator=generator) if rank else drawn
    cnbb = CNBB()
    found = cnbb(torch.tanh(mixed) if scale is None else scale * mixed)
    torch.testing.assert_close(found[:4], torch.tensor(first), atol=1e-4, rtol=1e-4)
    assert cnbb.effective_share.item() == pytest.approx(share, abs=6e-4)


def test_dwr_learns_a_weight_for_every_training_sample_and_acts():
    x = features(300, 4)
    x = (x - x.mean(0)) / x.std(0, correction=0)
    dwr = DWR()
    with pytest.warns(UserWarning, match=r"worth \d+ of 300 samples"):
        dwr.fit(x)
    batches = torch.randperm(300, generator=torch.Generator().manual_seed(0)).split(50)
    weights = torch.zeros(300)
    for batch in batches:
        weights[batch] = dwr(batch)
        assert dwr.effective_share < 0.99
    torch.testing.assert_close(weights.mean(), torch.tensor(1.0))
    assert dwr_loss_with_copies(x, weights) < 0.05 * dwr_loss_with_copies(x, torch.ones(300))
    published = decorrelating_weights(x, steps=5000, learning_rate=0.005, tol=1e-8)
    assert dwr_loss_with_copies(x, weights) < 1.05 * published.loss


def test_dwr_says_once_that_its_weights_collapsed_and_not_where_they_act():
    """Fewer than twice as many samples as features: all weights fall to zero; near copies: on a few
    samples.
    """
    generator = torch.Generator().manual_seed(0)
    few = torch.randn(60, 50, generator=generator)
    copies = torch.randn(200, 1, generator=generator) + 0.01 * torch.randn(
        200, 50, generator=generator
    )
    dwr = DWR()
    with pytest.warns(
        UserWarning, match=r"the weights of DWR fell to zero \(mean .*instead of 1.*here 60 for 50"
    ):
        dwr.fit(few)
    dwr(torch.arange(8))
    assert dwr.metrics()["mean_weight"] < 1e-3
    assert dwr.metrics()["effective_share"] > 0.1  # of a batch: it does not show the collapse
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dwr.fit(few + 0.01)  # the next epoch
        dwr.fit(torch.randn(300, 4, generator=generator))
    assert dwr.learnt["mean_weight"] > 0.9
    with pytest.warns(UserWarning, match=r"the weights of DWR are worth \d of 200 samples"):
        dwr.fit(copies)
    assert dwr.learnt["effective_share_of_all"] < 0.05
    batch = BatchDWR(learning_rate=0.05)
    # Equal, and near zero before
    torch.testing.assert_close(batch(few), torch.ones(60), atol=0.1, rtol=0)
    assert batch.metrics()["mean_weight"] < 0.01


@pytest.mark.parametrize(("mean", "scale"), [(0.0, 1e8), (0.0, 1e-6), (100.0, 1.0)])
def test_dwr_decorrelates_features_in_any_units(mean, scale):
    """The features of an untrained network in eval mode are of the order of 10⁸."""
    x = features(300, 4)
    dwr = DWR()
    with pytest.warns(UserWarning, match=r"worth \d+ of 300 samples"):
        dwr.fit((mean + scale * x.double()).float())
    x = (x - x.mean(0)) / x.std(0, correction=0)
    before, after = (
        dwr_loss_and_gradient(x, weights)[0]
        for weights in (torch.ones(300), dwr(torch.arange(300)))
    )
    assert after < 0.001 * before


def test_an_objective_hands_dwr_the_numbers_of_the_samples():
    x = features(40, 4)
    dwr = DWR()
    dwr.fit(x)
    objective = Objective(weighting=dwr)
    batch = torch.tensor([3, 30, 7, 11])
    logits = torch.randn(4, 3)
    labels = torch.tensor([0, 1, 2, 1])
    loss = objective(logits, labels, indices=batch)
    risks = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(loss, (dwr(batch) * risks).mean())
    with pytest.raises(ValueError, match=r"DWR needs indices; pass indices="):
        objective(logits, labels)
    with pytest.raises(
        ValueError, match=r"indices go from 3 to 40 and DWR has weights of 40 samples; call fit"
    ):
        objective(logits, labels, indices=torch.tensor([3, 30, 7, 40]))
    resumed = DWR()
    resumed.load_state_dict(dwr.state_dict())
    assert torch.equal(resumed(batch), dwr(batch))
    for wrong in (torch.zeros(40), torch.eye(40)[0] - 0.1):
        with pytest.raises(
            ValueError, match="sample_weights in the state are negative or all zero"
        ):
            resumed.load_state_dict({"sample_weights": wrong})


def test_random_fourier_features_by_definition():
    u = features(5, 3)
    torch.manual_seed(0)
    mapped = fourier_features(u, *(drawn[0] for drawn in draw_maps(u, 2, 1)))
    torch.manual_seed(0)
    frequency = torch.randn(2)
    phase = 2 * math.pi * torch.rand(2, 3)
    for f in range(2):
        for i in range(5):
            angles = [(frequency[f] * u[i, j] + phase[f, j]).item() for j in range(3)]
            for j in range(3):
                angle = (angles[j] - min(angles)) / (max(angles) - min(angles)) * math.pi / 2
                assert mapped[f, i, j].item() == pytest.approx(
                    math.cos(angle) + math.sin(angle), abs=1e-5
                )


def test_uniform_has_all_samples():
    uniform = Uniform()
    assert uniform.effective_sample_size is None
    assert torch.equal(uniform(torch.rand(7)), torch.ones(7))
    assert uniform.effective_sample_size == 7
    assert uniform.effective_share == 1
    assert uniform.metrics() == {"effective_sample_size": 7, "effective_share": 1}


def test_stablenet_memory_is_a_mean_first_and_then_a_moving_average():
    weighting = StableNet(steps=0, decay=0.75)
    batches = [features(6, seed=seed) for seed in range(12)]
    for batch in batches[:10]:
        weighting(batch)
    torch.testing.assert_close(weighting.memory_features, torch.stack(batches[:10]).mean(0))
    before = weighting.memory_features.clone()
    weighting(batches[10])
    torch.testing.assert_close(weighting.memory_features, 0.75 * before + 0.25 * batches[10])
    before = weighting.memory_features.clone()
    weighting(batches[11][:2])  # the short last batch of an epoch
    torch.testing.assert_close(
        weighting.memory_features[:2], 0.75 * before[:2] + 0.25 * batches[11][:2]
    )
    assert torch.equal(weighting.memory_features[2:], before[2:])
    assert weighting.batches_seen == 12


def test_stablenet_refuses_what_would_spoil_its_memory():
    weighting = StableNet()
    weighting(features(6))
    before = weighting.memory_features.clone()
    with pytest.raises(
        ValueError, match="features have 3 columns, but StableNet remembers batches of 4"
    ):
        weighting(features(6, 3))
    assert torch.equal(weighting.memory_features, before)
    assert weighting.batches_seen == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
@pytest.mark.parametrize("kind", [BatchDWR, CNBB, StableNet])
def test_a_replayed_cuda_graph_gives_the_same_weights(kind):
    replayed = kind().cuda()
    stepwise = kind().cuda()
    for batch in range(8):
        u = features(24, 40, seed=batch).cuda()
        # Without a record, so the first calls of a kind, which run step by step
        stepwise.captured = Captured()
        torch.manual_seed(batch)
        expected = stepwise(u)
        torch.manual_seed(batch)
        assert torch.equal(replayed(u), expected)
    assert len(replayed.captured._records) == 1
