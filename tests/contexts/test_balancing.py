"""Groups are drawn alike, or weighed so that contexts are equally frequent in every class."""

import warnings
from collections import Counter
from itertools import chain

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from pfdl import context_sampler, context_weights
from pfdl.contexts import choose_balance


def labels_and_contexts(samples=600, classes=4, contexts=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=samples)
    return labels, np.where(
        rng.random(samples) < 0.6, labels % contexts, rng.integers(contexts, size=samples)
    )


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
    labels = np.zeros(1000, dtype=int)
    contexts = np.array([0] * 999 + [1])
    with pytest.warns(
        UserWarning, match=r"a group of 1 samples has weight 500\.0 each.*context_sampler"
    ):
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
    for balance in (context_weights, context_sampler):
        with pytest.raises(ValueError, match=r"the shapes differ: labels \(2,\), contexts \(3,\)"):
            balance([0, 1], [0, 1, 2])


def test_all_groups_are_drawn_alike_and_no_sample_again_before_all():
    labels, contexts = labels_and_contexts()
    sampler = context_sampler(labels, contexts)
    drawn = list(sampler)
    assert len(drawn) == len(sampler) == 600
    groups = Counter((labels[row], contexts[row]) for row in drawn)
    assert len(groups) == 12
    assert set(groups.values()) == {50}
    times, sizes = Counter(drawn), Counter(zip(labels.tolist(), contexts.tolist(), strict=True))
    for row in range(600):
        size = sizes[labels[row], contexts[row]]
        assert times[row] in (50 // size, -(-50 // size))


def test_with_one_context_every_sample_is_drawn_once():
    labels, _ = labels_and_contexts()
    assert sorted(context_sampler(labels, np.full(len(labels), 3))) == list(range(600))
    # Classes as contexts: all alike
    classes = Counter(labels[row] for row in context_sampler(labels, labels))
    assert set(classes.values()) == {600 // len(classes)}


def test_the_order_follows_from_seed_and_epoch():
    labels, contexts = labels_and_contexts()
    first, again = (
        context_sampler(labels, contexts, seed=3),
        context_sampler(labels, contexts, seed=3),
    )
    one, two = list(first), list(first)
    assert one != two
    again.set_epoch(1)
    assert list(again) == two
    assert list(context_sampler(labels, contexts, seed=4)) != one


def test_processes_share_an_epoch():
    labels, contexts = labels_and_contexts()
    parts = [
        context_sampler(labels, contexts, num_samples=601, replicas=3, rank=rank)
        for rank in range(3)
    ]
    assert [len(part) for part in parts] == [201] * 3
    together = chain.from_iterable(parts)
    assert Counter(together) == Counter(context_sampler(labels, contexts, num_samples=603))


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("num_samples", 0, "it must"),
        ("seed", -1, "it must"),
        ("rank", 1, "with 1 repl"),
        ("power", 1.5, "give .* to 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(name, value, wanted):
    with pytest.raises(ValueError, match=f"{name} is {value}; {wanted}"):
        context_sampler([0, 1], [0, 1], **{name: value})
    with pytest.raises(ValueError, match="there are no samples"):
        context_sampler([], [])


def test_less_power_balances_less():
    labels = np.zeros(110, int)
    contexts = np.repeat([0, 1], [100, 10])
    for power, rare in ((0.0, 10), (0.5, round(110 * 10**0.5 / (10**0.5 + 100**0.5))), (1.0, 55)):
        drawn = np.array(list(context_sampler(labels, contexts, power=power)))
        assert (drawn >= 100).sum() == rare
        assert len(drawn) == 110
    plain = list(context_sampler(labels, contexts, power=0.0))
    assert sorted(plain) == list(range(110))  # every sample once


def average_of_pooled_groups(predicted, labels, contexts):
    """The naive reference: one number per sample, the small groups as one."""
    groups = {}
    for sample in zip(predicted, labels, contexts, strict=True):
        groups.setdefault(sample[1:], []).append(sample[0] == sample[1])
    small = [right for right in groups.values() if len(right) < 10]
    means = [np.mean(right) for right in groups.values() if len(right) >= 10]
    if small:
        means += [np.mean(np.concatenate(small))] * len(small)
    return np.mean(means)


@pytest.mark.parametrize("samples", [60, 200, 1000])
def test_the_strength_with_the_best_held_out_average_over_pooled_groups_is_chosen(samples):
    rng = np.random.default_rng(samples)
    for seed in range(20):
        labels, contexts = labels_and_contexts(samples, seed=seed)
        predictions, average = {}, {}
        for power in (1.0, 0.5, 0):
            guesses = rng.integers(4, size=samples)
            predictions[power] = np.where(rng.random(samples) < 0.7, labels, guesses)
            average[power] = average_of_pooled_groups(predictions[power], labels, contexts)
        chosen = choose_balance(predictions, labels, contexts)
        assert average[chosen] == pytest.approx(max(average.values()), abs=1e-12)


def test_the_chosen_strength_is_low_where_the_labels_of_rare_groups_are_wrong():
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=2000)
    contexts = np.where(rng.random(2000) < 0.9, truth, 1 - truth)
    # Half of a rare group is wrongly labelled
    wrong = np.where(rng.random(2000) < 0.1, 1 - truth, truth)
    features = np.stack([2.0 * truth, 2.0 * contexts], axis=1) + rng.normal(size=(2000, 2))
    for labels, best in ((truth, 1.0), (wrong, 0.0)):
        predictions = {}
        for power in (0.0, 1.0):
            drawn = list(context_sampler(labels[:1000], contexts[:1000], power=power))
            by_heart = KNeighborsClassifier(15).fit(features[drawn], labels[drawn])
            predictions[power] = by_heart.predict(features[1000:])
        assert choose_balance(predictions, labels[1000:], contexts[1000:]) == best


def test_of_equal_strengths_and_with_one_context_the_mildest_is_chosen():
    same = np.array([0, 1, 1, 1])
    assert choose_balance({1.0: same, 0.5: same}, [0, 0, 1, 1], [0, 1, 0, 1]) == 0.5
    assert choose_balance({1.0: [0, 0, 1, 1], 0.0: same}, [0, 0, 1, 1], [3, 3, 3, 3]) == 0.0
    scores = torch.eye(2)[[0, 0, 1, 1]]
    assert choose_balance({0.0: same, 1.0: scores}, [0, 0, 1, 1], [0, 1, 0, 1]) == 1.0
    with pytest.raises(ValueError, match="there are no predictions"):
        choose_balance({}, [0, 1], [0, 1])
    with pytest.raises(ValueError, match=r"predictions have shape \(4,\) and labels \(2,\)"):
        choose_balance({0.0: same}, [0, 1], [0, 1])


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
