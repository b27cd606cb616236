"""JTT, SPARE and EIIL from a network's logits, against what the classes of SpuCo 2.0.3 return on
the same logits.

The numbers were printed by JTTInference, SpareInference (and the sampling weights of SpareTrain)
and EIIL, with SpuCo's seed set to 0.
"""

import numpy as np
import pytest
import torch

from pfdl.contexts import (
    find_by_eiil,
    find_by_jtt,
    find_by_spare,
    find_contexts,
    group_report,
    spread_contexts,
)
from tests.contexts.objects import in_contexts


@pytest.fixture(scope="module")
def outputs():
    """Logits of 300 samples in three classes that follow a context, which 85 % of a class share."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(3, (300,), generator=generator)
    other = torch.rand(300, generator=generator) >= 0.85
    context = torch.where(other, torch.randint(3, (300,), generator=generator), labels)
    noise = 0.4 * torch.randn(300, 3, generator=generator)
    return noise + 2 * torch.eye(3)[context] + 0.7 * torch.eye(3)[labels], labels


def test_jtt_takes_what_the_network_gets_wrong(outputs):
    logits, labels = outputs
    found = find_by_jtt(logits, labels, upweight=50)
    wrong = np.flatnonzero(found.contexts)
    assert len(wrong) == 23
    assert wrong[:8].tolist() == [24, 37, 69, 75, 113, 116, 121, 123]
    assert found.draws[wrong].tolist() == [51] * 23  # in the training set, and 50 times more
    assert found.draws.sum() == 277 + 23 * 51
    assert found.sentence == "The network gets 23 of 300 samples wrong; each is added 50 times."
    by_predictions = find_by_jtt(logits.argmax(1), labels)
    assert np.array_equal(by_predictions.contexts, found.contexts)


@pytest.mark.parametrize(
    ("clusters", "sizes", "first"),
    [
        (
            3,
            [4, 5, 5, 6, 19, 36, 52, 86, 87],
            [0.043024, 0.173077, 0.043024, 0.032107, 0.043024, 0.032107],
        ),
        (
            None,
            [5, 5, 6, 10, 87, 88, 99],
            [0.09267, 0.072534, 0.09267, 0.032107, 0.09267, 0.032107],
        ),
    ],
)
def test_spare_clusters_the_logits_of_each_class(outputs, clusters, sizes, first):
    logits, labels = outputs
    found = find_by_spare(logits, labels, clusters=clusters)
    assert sorted(np.bincount(found.contexts).tolist()) == sizes
    assert found.draws[:6] == pytest.approx(first, abs=1e-6)
    for label in range(3):  # all classes equally often
        assert found.draws[labels.numpy() == label].sum() == pytest.approx(100)
    for context in range(len(sizes)):  # a context is of one class
        assert len(np.unique(labels.numpy()[found.contexts == context])) == 1


def test_spare_seeks_no_more_clusters_than_ten_and_fewer_in_a_small_class():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [120, 3])
    logits = 100.0 * rng.normal(size=(12, 2))[np.arange(120) % 12]
    logits = np.concatenate([logits, [[0, 0], [0, 1], [9, 9]]])
    found = find_by_spare(logits, labels)
    assert len(np.unique(found.contexts[labels == 0])) == 10
    assert np.bincount(found.contexts[labels == 1])[-2:].tolist() in ([2, 1], [1, 2])


def test_spare_draws_clear_clusters_equally_often():
    labels = np.zeros(12, int)
    labels[6:] = 1
    logits = np.zeros((12, 2))
    logits[[0, 1, 6, 7, 8]] = 50.0
    found = find_by_spare(logits + np.linspace(0, 0.01, 12)[:, None], labels, clusters=2)
    assert found.draws == pytest.approx(np.array([1.5, 1.5, *[0.75] * 4, *[1.0] * 6]))


def test_eiil_splits_where_the_network_is_least_invariant(outputs):
    logits, labels = outputs
    found = find_by_eiil(logits, labels, steps=1000, learning_rate=0.1)
    assert np.bincount(found.contexts).tolist() == [23, 277]
    assert int(found.contexts[:40] @ 2 ** np.arange(40)) == 962055897087
    for environment in (0, 1):
        assert found.draws[found.contexts == environment].sum() == pytest.approx(150)


def test_the_gradient_of_eiil_is_that_of_autograd(outputs):
    """One step of the published computation, in float64, moves every score the same way."""
    logits, labels = (value[:40] for value in outputs)
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(logits.double() * scale, labels, reduction="none")
    start = torch.randn(40, generator=torch.Generator().manual_seed(0))
    scores = start.double().requires_grad_()
    optimizer = torch.optim.Adam([scores], lr=0.5)
    for _ in range(3):
        penalties = []
        for share in (scores.sigmoid(), 1 - scores.sigmoid()):
            (slope,) = torch.autograd.grad((loss * share).mean(), scale, create_graph=True)
            penalties.append(slope.square())
        optimizer.zero_grad()
        (-torch.stack(penalties).mean()).backward(retain_graph=True)
        optimizer.step()
    found = find_by_eiil(logits, labels, steps=3, learning_rate=0.5)
    assert np.array_equal(found.contexts, (scores.detach() > 0).numpy())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: find_by_jtt(np.zeros((3, 2)), [0, 1]),
            r"predictions have shape \(3,\) and labels \(2,\)",
        ),
        (lambda: find_by_jtt(["cow", "camel"], [0, 1]), "give both as numbers or as names"),
        (lambda: find_by_jtt([0, 1], ["a", "b"]), "labels must be the numbers of the classes"),
        (lambda: find_by_spare(np.zeros((2, 2)), [0, 2]), "for 2 labels up to 2; give finite ones"),
        (lambda: find_by_eiil(np.full((2, 2), np.nan), [0, 1]), "give finite ones"),
        (
            lambda: find_by_spare(np.zeros((2, 2)), [0, 1], clusters=1),
            "clusters is 1; it must be at least 2",
        ),
    ],
)
def test_outputs_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_contexts_of_a_tenth_are_enough_where_clusters_find_none():
    features, labels, contexts = in_contexts(samples=2000, strength=1.0, dominant=0.9)
    assert find_contexts(features, labels).number == 1
    names = np.array(["forest", "lake", "sand", "snow"])[contexts]
    found = spread_contexts(
        features[200:],
        labels[200:],
        known_features=features[:200],
        known_labels=labels[:200],
        known_contexts=names[:200],
    )
    assert (found.contexts == contexts[200:]).mean() > 0.95
    assert group_report(labels[200:], found.contexts, contexts[200:]).minority_recall > 0.9
    assert "200 samples were spread to 1800" in found.sentence


@pytest.mark.parametrize(
    ("known_labels", "features", "contexts", "message"),
    [
        ([0, 1, 0, 1], np.eye(4), [0, 1, 1], "give"),
        ([0, 1, 0, 1], np.eye(4)[:, :3], [0, 1, 0, 1], "give"),
        (
            [0, 1, 0],
            np.eye(4),
            [0, 1, 0, 1],
            r"labels \(5,\), known_features \(4, 4\), known_labels \(3,\)",
        ),
        ([0, 1, 0, 1], np.eye(4), [2] * 4, "fewer than two"),
    ],
)
def test_what_cannot_be_spread_is_refused(known_labels, features, contexts, message):
    labels = [0, 1, 0, 1, 1][: 8 - len(known_labels)]  # as many in all
    with pytest.raises(ValueError, match=message):
        spread_contexts(
            np.eye(4),
            labels,
            known_features=features,
            known_labels=known_labels,
            known_contexts=contexts,
        )
