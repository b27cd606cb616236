"""Groups are drawn alike, or weighed so that contexts are equally frequent in every class."""

import warnings
from collections import Counter

import numpy as np
import pytest
import torch

from pfdl import context_sampler, context_weights
from pfdl.contexts import ContextSampler, choose_balance


def labels_and_contexts(samples=600, classes=4, contexts=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=samples)
    return labels, np.where(rng.random(samples) < 0.6, labels % contexts, rng.integers(contexts, size=samples))


def test_weights_make_contexts_equally_frequent_in_every_class():
    labels, contexts = labels_and_contexts()
    weights = context_weights(labels, contexts, smoothing=0.0)
    for label in range(4):
        mine = labels == label
        assert weights[mine].mean() == pytest.approx(1.0)
        shares = [weights[mine & (contexts == context)].sum() / mine.sum() for context in range(3)]
        np.testing.assert_allclose(shares, 1 / 3)


def test_tensors_give_tensors_and_arrays_give_arrays():
    labels, contexts = (torch.from_numpy(part) for part in labels_and_contexts())
    weights = context_weights(labels, contexts)
    assert weights.dtype == torch.float32
    array = context_weights(labels.numpy(), contexts)
    assert isinstance(array, np.ndarray)
    np.testing.assert_allclose(weights.numpy(), array, rtol=1e-6)
    np.testing.assert_allclose(context_weights(np.eye(4)[labels], contexts), array)


def test_smoothing_bounds_the_weight_of_a_stray_sample():
    labels, contexts = np.zeros(1000, dtype=int), np.array([0] * 999 + [1])
    with pytest.warns(UserWarning, match=r"a group of 1 samples has weight 500\.0 each.*context_sampler"):
        assert context_weights(labels, contexts, smoothing=0.0)[-1] == pytest.approx(500.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        smoothed = context_weights(labels, contexts)
    assert smoothed[-1] / smoothed[0] == pytest.approx((999 + 125) / (1 + 125))


@pytest.mark.parametrize("smoothing", [float("nan"), float("inf"), -1.0])
def test_a_smoothing_that_is_none_is_refused(smoothing):
    with pytest.raises(ValueError, match=r"smoothing is .*finite number of at least 0"):
        context_weights([0, 1], [0, 1], smoothing=smoothing)


def test_unequal_columns_are_refused():
    with pytest.raises(ValueError, match=r"the shapes differ: labels \(2,\), contexts \(3,\)"):
        context_weights([0, 1], [0, 1, 2])
    with pytest.raises(ValueError, match=r"the shapes differ: labels \(2,\), contexts \(3,\)"):
        context_sampler([0, 1], [0, 1, 2])


def test_all_groups_are_drawn_alike_and_no_sample_again_before_all():
    labels, contexts = labels_and_contexts()
    sampler = context_sampler(labels, contexts)
    drawn = list(sampler)
    assert len(drawn) == len(sampler) == 600
    groups = Counter((labels[row], contexts[row]) for row in drawn)
    assert len(groups) == sampler.num_groups == 12
    assert set(groups.values()) == {50}
    times, sizes = Counter(drawn), Counter(zip(labels.tolist(), contexts.tolist(), strict=True))
    for row in range(600):
        size = sizes[labels[row], contexts[row]]
        assert times[row] in (50 // size, -(-50 // size))


def test_with_one_context_every_sample_is_drawn_once():
    labels, _ = labels_and_contexts()
    sampler = context_sampler(labels, np.full(len(labels), 3))
    assert sampler.num_groups == 1
    assert sorted(sampler) == list(range(600))
    classes = Counter(labels[row] for row in context_sampler(labels, labels))  # classes as contexts: all alike
    assert set(classes.values()) == {600 // len(classes)}


def test_the_order_follows_from_seed_and_epoch():
    labels, contexts = labels_and_contexts()
    first, again = context_sampler(labels, contexts, seed=3), context_sampler(labels, contexts, seed=3)
    one, two = list(first), list(first)
    assert one != two
    again.set_epoch(1)
    assert list(again) == two
    assert list(context_sampler(labels, contexts, seed=4)) != one


def test_processes_share_an_epoch():
    labels, contexts = labels_and_contexts()
    parts = [ContextSampler(labels, contexts, num_samples=601, replicas=3, rank=rank) for rank in range(3)]
    assert [len(part) for part in parts] == [201] * 3
    together = [row for part in parts for row in part]
    assert Counter(together) == Counter(ContextSampler(labels, contexts, num_samples=603))


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"num_samples": 0}, "num_samples is 0"), ({"seed": -1}, "seed is -1"), ({"rank": 1}, "rank is 1; with 1 repl")],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ContextSampler([0, 1], [0, 1], **settings)
    with pytest.raises(ValueError, match="there are no samples"):
        ContextSampler([], [])


def test_less_power_balances_less():
    labels, contexts = np.zeros(110, int), np.repeat([0, 1], [100, 10])
    for power, rare in ((0.0, 10), (0.5, round(110 * 10**0.5 / (10**0.5 + 100**0.5))), (1.0, 55)):
        drawn = np.array(list(ContextSampler(labels, contexts, power=power)))
        assert (drawn >= 100).sum() == rare
        assert len(drawn) == 110
    plain = list(ContextSampler(labels, contexts, power=0.0))
    assert sorted(plain) == list(range(110))  # every sample once


def test_the_strength_of_balancing_is_chosen_on_held_out_samples():
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=1500)
    contexts = np.where(rng.random(1500) < 0.9, labels, 1 - labels)
    features = np.hstack([2.0 * contexts[:, None] + np.zeros((1500, 4)), 0.8 * labels[:, None] + np.zeros((1500, 4))])
    features = features + 0.7 * rng.normal(size=features.shape)
    assert choose_balance(features, labels, contexts) >= 0.5
    unseen = np.where(rng.random(1500) < 0.9, labels, 1 - labels)  # contexts that no feature shows: nothing to gain
    assert choose_balance(features, labels, unseen) == 0
    assert choose_balance(features, labels, np.zeros(1500)) == 0


@pytest.mark.parametrize("smoothing", [0.0, 1.0, 1e38])
def test_any_smoothing_gives_finite_weights(smoothing):
    weights = context_weights([0, 0, 0, 1], [0, 0, 1, 0], smoothing=smoothing)
    assert np.isfinite(weights).all()
    assert weights[:3].mean() == pytest.approx(1)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.ma.masked_array([0, 1, 1], [True, False, False]), "labels are masked in places"),
        (np.array(["a", None, "b"], dtype=object), "labels have None or NaN among them"),
        (np.array([0.0, np.nan, 1.0]), "labels have NaN among them"),
    ],
)
def test_labels_that_are_missing_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        context_weights(labels, [0, 1, 1])
