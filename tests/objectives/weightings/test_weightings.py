"""Every weighting against a transcription of its equation, written loop by loop."""

import math
import warnings
from itertools import permutations

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


def weighted_mean(f, w, rows):
    return sum(w[i] * f[i] for i in rows) / sum(w[i] for i in rows)


def naive_balance(f, w):
    n, p = f.shape
    total = f.new_zeros(())
    for j in range(p):
        on = [i for i in range(n) if f[i, j] > 0]
        off = [i for i in range(n) if f[i, j] <= 0]
        if on and off:
            difference = weighted_mean(f, w, on) - weighted_mean(f, w, off)
            total = total + difference.square().sum() - difference[j].square()
    return total


def naive_dependence(mapped, w):
    total = mapped.new_zeros(())
    for z in mapped:
        p = z.shape[1]
        for j, k in permutations(range(p), 2):
            centred_j = z[:, j] - (w * z[:, j]).sum()
            centred_k = z[:, k] - (w * z[:, k]).sum()
            total = total + (w * centred_j * centred_k).sum() ** 2
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
    f[:5, 4] = 0.0  # off
    (wanted,) = torch.autograd.grad(naive_balance(f, w), w)
    torch.testing.assert_close(balance_gradient(f, w.detach()), wanted)


def naive_stablenet(u, maps, memory_features, memory_weights):
    """θ of one batch by SGD on the loss by autograd, with steps=6, learning_rate=5, balance=0.5."""
    together = torch.cat([u, memory_features])
    logits = torch.ones(len(u), requires_grad=True)
    optimizer = torch.optim.SGD([logits], lr=5.0, momentum=0.9)
    for step, (frequency, phase) in enumerate(zip(*maps, strict=True)):
        optimizer.param_groups[0]["lr"] = 5.0 if step < 3 else 0.5
        everyone = torch.cat([logits, memory_weights]).softmax(0)
        mapped = fourier_features(together, frequency, phase)
        loss = naive_dependence(mapped, everyone) / 0.5 + logits.softmax(0).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return logits.detach()


@pytest.mark.parametrize("batches", [1, 3])
def test_stablenet_is_sgd_on_its_loss(batches):
    weighting = StableNet(steps=6, learning_rate=5.0, functions=2, balance=0.5)
    for seed in range(batches):
        u = features(12, 5, seed=seed)
        memory_features = weighting.memory_features.clone().reshape(-1, 5)
        memory_weights = weighting.memory_weights.clone()
        torch.manual_seed(seed)
        weights = weighting(u)
        torch.manual_seed(seed)
        maps = draw_maps(u, 2, 6)
        logits = naive_stablenet(u, maps, memory_features, memory_weights)
        torch.testing.assert_close(weights, 12 * logits.softmax(0), atol=1e-5, rtol=1e-4)


def test_stablenet_draws_its_maps_and_no_more():
    weighting = StableNet(steps=6, functions=2)
    u = features(12, 5)
    torch.manual_seed(3)
    weighting(u)
    after = torch.get_rng_state()
    torch.manual_seed(3)
    draw_maps(u, 2, 6)
    assert torch.equal(torch.get_rng_state(), after)


def test_cnbb_is_projected_gradient_descent_on_its_loss():
    f = features(20, 5).double()
    weights = torch.full((20,), 1 / 20, dtype=torch.float64)
    for _ in range(6):
        weights.requires_grad_()
        loss = naive_balance(f, weights) + 0.01 * weights.square().sum()
        (gradient,) = torch.autograd.grad(loss, weights)
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


class TestDWR:
    """On standardised features of 300 samples, which its weights of so many samples decorrelate."""

    @pytest.fixture(scope="class")
    @classmethod
    def x(cls):
        x = features(300, 4)
        return (x - x.mean(0)) / x.std(0, correction=0)

    @pytest.fixture(scope="class")
    @classmethod
    def dwr(cls, x):
        dwr = DWR()
        with pytest.warns(UserWarning, match=r"worth \d+ of 300 samples"):
            dwr.fit(x)
        return dwr

    def test_each_batch_gets_the_weights_of_its_samples(self, dwr):
        whole = dwr(torch.arange(300))
        batch = torch.tensor([17, 3, 299])
        assert torch.equal(dwr(batch), whole[batch])

    def test_weights_have_a_mean_of_one_and_act(self, dwr):
        weights = dwr(torch.arange(300))
        torch.testing.assert_close(weights.mean(), torch.tensor(1.0))
        assert dwr.effective_share < 0.99

    def test_features_are_decorrelated_under_them(self, x, dwr):
        weights = dwr(torch.arange(300))
        equal = dwr_loss_with_copies(x, torch.ones(300))
        assert dwr_loss_with_copies(x, weights) < 0.05 * equal

    def test_its_loss_is_that_of_the_published_solver(self, x, dwr):
        weights = dwr(torch.arange(300))
        published = decorrelating_weights(x, steps=5000, learning_rate=0.005, tol=1e-8)
        assert dwr_loss_with_copies(x, weights) < 1.05 * published.loss


def few_samples():
    """Fewer than twice as many samples as features: all weights fall to zero."""
    return torch.randn(60, 50, generator=torch.Generator().manual_seed(0))


def near_copies():
    """One feature fifty times, nearly: the weights fall on a few samples."""
    generator = torch.Generator().manual_seed(0)
    feature = torch.randn(200, 1, generator=generator)
    return feature + 0.01 * torch.randn(200, 50, generator=generator)


class TestCollapse:
    def test_weights_that_fell_to_zero_are_warned_of(self):
        dwr = DWR()
        sentence = r"the weights of DWR fell to zero \(mean .*instead of 1.*here 60 for 50"
        with pytest.warns(UserWarning, match=sentence):
            dwr.fit(few_samples())
        dwr(torch.arange(8))
        assert dwr.metrics()["mean_weight"] < 1e-3
        assert dwr.metrics()["effective_share"] > 0.1  # of a batch: it does not show the collapse

    def test_the_warning_comes_once_while_it_lasts_and_again_after_weights_that_act(self):
        dwr = DWR()
        with pytest.warns(UserWarning, match="fell to zero"):
            dwr.fit(few_samples())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            dwr.fit(few_samples() + 0.01)  # the next epoch
            dwr.fit(torch.randn(300, 4, generator=torch.Generator().manual_seed(1)))
        assert dwr.learnt["mean_weight"] > 0.9
        with pytest.warns(UserWarning, match="fell to zero"):
            dwr.fit(few_samples())

    def test_weights_on_few_samples_are_warned_of(self):
        dwr = DWR()
        sentence = r"the weights of DWR are worth \d of 200 samples"
        with pytest.warns(UserWarning, match=sentence):
            dwr.fit(near_copies())
        assert dwr.learnt["effective_share_of_all"] < 0.05

    def test_those_of_a_batch_are_equal_and_were_near_zero(self):
        weighting = BatchDWR(learning_rate=0.05)
        weights = weighting(few_samples())
        torch.testing.assert_close(weights, torch.ones(60), atol=0.1, rtol=0)
        assert weighting.metrics()["mean_weight"] < 0.01


@pytest.mark.parametrize(("mean", "scale"), [(0.0, 1e8), (0.0, 1e-6), (100.0, 1.0)])
def test_dwr_decorrelates_features_in_any_units(mean, scale):
    """The features of an untrained network in eval mode are of the order of 10⁸."""
    x = features(300, 4)
    dwr = DWR()
    with pytest.warns(UserWarning, match=r"worth \d+ of 300 samples"):
        dwr.fit((mean + scale * x.double()).float())
    standardised = (x - x.mean(0)) / x.std(0, correction=0)
    before, _ = dwr_loss_and_gradient(standardised, torch.ones(300))
    after, _ = dwr_loss_and_gradient(standardised, dwr(torch.arange(300)))
    assert after < 0.001 * before


class TestDWRInAnObjective:
    logits = torch.linspace(-1, 1, 12).reshape(4, 3)
    labels = torch.tensor([0, 1, 2, 1])
    indices = torch.tensor([3, 30, 7, 11])

    @pytest.fixture(scope="class")
    @classmethod
    def dwr(cls):
        dwr = DWR()
        dwr.fit(features(40, 4))
        return dwr

    def test_it_gets_the_numbers_of_the_samples(self, dwr):
        loss = Objective(weighting=dwr)(self.logits, self.labels, indices=self.indices)
        risks = torch.nn.functional.cross_entropy(self.logits, self.labels, reduction="none")
        torch.testing.assert_close(loss, (dwr(self.indices) * risks).mean())

    def test_without_them_it_says_what_it_needs(self, dwr):
        with pytest.raises(ValueError, match=r"DWR needs indices; pass indices="):
            Objective(weighting=dwr)(self.logits, self.labels)

    @pytest.mark.parametrize(("first", "last"), [(3, 40), (-1, 30)])
    def test_numbers_without_a_weight_are_refused(self, dwr, first, last):
        sentence = rf"indices go from {first} to {last} and DWR has weights of 40 samples; call fit"
        with pytest.raises(ValueError, match=sentence):
            dwr(torch.tensor([first, 5, last]))

    def test_a_loaded_state_has_the_same_weights(self, dwr):
        resumed = DWR()
        resumed.load_state_dict(dwr.state_dict())
        assert torch.equal(resumed(self.indices), dwr(self.indices))

    @pytest.mark.parametrize("weights", [torch.zeros(40), torch.eye(40)[0] - 0.1])
    def test_a_state_whose_weights_are_none_is_refused(self, weights):
        with pytest.raises(ValueError, match="sample_weights in the state are negative or all"):
            DWR().load_state_dict({"sample_weights": weights})


def naive_fourier_features(row, frequency, phase):
    angles = [frequency * value + shift for value, shift in zip(row, phase, strict=True)]
    lowest = min(angles)
    width = max(angles) - lowest
    scaled = [(angle - lowest) / width * math.pi / 2 for angle in angles]
    return [math.cos(angle) + math.sin(angle) for angle in scaled]


def test_random_fourier_features_by_definition():
    u = features(5, 3)
    torch.manual_seed(0)
    frequencies, phases = draw_maps(u, 2, 1)
    mapped = fourier_features(u, frequencies[0], phases[0])
    torch.manual_seed(0)
    frequency = torch.randn(2)
    phase = 2 * math.pi * torch.rand(2, 3)
    expected = [
        torch.tensor([naive_fourier_features(row, frequency[f], phase[f]) for row in u])
        for f in range(2)
    ]
    torch.testing.assert_close(mapped, torch.stack(expected), atol=1e-5, rtol=0)


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
    blended = 0.75 * before[:2] + 0.25 * batches[11][:2]
    torch.testing.assert_close(weighting.memory_features[:2], blended)
    assert torch.equal(weighting.memory_features[2:], before[2:])
    # Without a step every weight stays as it was at the start, and so does its mean
    assert torch.equal(weighting.memory_weights, torch.ones(6))
    assert weighting.batches_seen == 12


def test_stablenet_refuses_what_would_spoil_its_memory():
    weighting = StableNet()
    weighting(features(6))
    before = weighting.memory_features.clone()
    sentence = "features have 3 columns, but StableNet remembers batches of 4"
    with pytest.raises(ValueError, match=sentence):
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
