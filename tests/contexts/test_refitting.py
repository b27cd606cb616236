"""Refitting a last layer on groups that count alike."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn import functional as F

from pfdl.contexts import refit_readout, worst_group_accuracy
from pfdl.contexts.refitting import l1_logistic_regression


def biased_features(n, minority, seed=0):
    """Column 0 says the class with some noise, column 1 the context, which mostly goes with the
    class.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (n,), generator=generator)
    contexts = torch.where(torch.rand(n, generator=generator) < minority, 1 - labels, labels)
    noise = torch.randn(n, 6, generator=generator)
    noise[:, 0] = 2.0 * labels - 1 + 0.6 * noise[:, 0]
    noise[:, 1] = 3 * (2.0 * contexts - 1) + 0.3 * noise[:, 1]
    return noise, labels, contexts


def objective(weight, bias, x, y, strength):
    return float(
        strength * F.cross_entropy(x @ weight.T + bias, y, reduction="sum") + weight.abs().sum()
    )


@pytest.mark.parametrize("strength", [1.0, 0.1])
def test_the_regression_is_that_of_scikit_learn(strength):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 5, generator=generator, dtype=torch.float64)
    y = (x[:, :3] + 0.5 * torch.randn(60, 3, generator=generator, dtype=torch.float64)).argmax(1)
    weight, bias = l1_logistic_regression(x, y, 3, strength, iterations=5000)
    l1 = (
        {"l1_ratio": 1.0}
        if LogisticRegression().get_params()["penalty"] == "deprecated"
        else {"penalty": "l1"}
    )
    theirs = LogisticRegression(**l1, C=strength, solver="saga", max_iter=20_000, tol=1e-8).fit(
        x, y
    )
    reference = objective(
        torch.tensor(theirs.coef_), torch.tensor(theirs.intercept_), x, y, strength
    )
    assert objective(weight, bias, x, y, strength) == pytest.approx(reference, rel=1e-5)
    torch.testing.assert_close(weight, torch.tensor(theirs.coef_), atol=2e-3, rtol=2e-2)


def test_the_worst_group_gains_over_a_layer_that_follows_the_mixture():
    x, y, contexts = biased_features(2000, 0.03)
    test, truth, where = biased_features(2000, 0.5, seed=1)
    plain = LogisticRegression().fit(x, y)
    found = refit_readout(x, y, contexts, repetitions=5)
    answers = (test @ found.weight.T + found.bias).argmax(1)
    before = worst_group_accuracy(plain.predict(test), truth, where)
    after = worst_group_accuracy(answers, truth, where)
    assert after > before + 0.1
    assert after > 0.9
    assert found.held_out_worst > 0.8
    assert found.samples_per_group == np.bincount(2 * y + contexts).min()


def test_the_same_seed_gives_the_same_layer_and_classes_may_be_absent():
    x, y, contexts = biased_features(300, 0.2)
    one, other = (
        refit_readout(x, y, contexts, num_classes=3, repetitions=2, seed=4) for _ in range(2)
    )
    assert torch.equal(one.weight, other.weight)
    assert one.weight.shape == (3, 6)
    assert not ((x @ one.weight.T + one.bias).argmax(1) == 2).any()


def test_a_constant_feature_gets_no_weight_and_a_group_of_a_few_samples_is_left_out():
    x, y, contexts = biased_features(400, 0.2)
    x[:, 3] = 7.0
    contexts[:3] = 2  # found by chance, say
    found = refit_readout(x, y, contexts, repetitions=2)
    assert torch.equal(found.weight[:, 3], torch.zeros(2))
    assert bool(torch.isfinite(found.bias).all())
    assert found.samples_per_group > 10
    assert [name.rpartition(" (")[0] for name in found.left_out] == [
        "class 0 in context 2",
        "class 1 in context 2",
    ]


def test_a_context_that_keeps_one_class_is_refused_and_the_lost_group_is_named():
    x, y, contexts = biased_features(400, 0.2)
    rare = torch.nonzero((y == 0) & (contexts == 1)).flatten()
    kept = torch.ones(400, dtype=torch.bool)
    kept[rare[3:]] = False
    names = {"class_names": ["sick", "healthy"], "context_names": ["field", "laboratory"]}
    sentence = (
        r"laboratory has 4 samples or more of healthy alone.*Too small: sick in laboratory \(3\)"
    )
    with pytest.raises(ValueError, match=sentence):
        refit_readout(x[kept], y[kept], contexts[kept], repetitions=2, **names)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda x, y, c: (x, y, torch.zeros_like(c)), "one context"),
        (lambda x, y, c: (x[:9], y[:9], torch.arange(9) % 5), "too few groups"),
        (
            lambda x, y, c: (x[:24], torch.arange(24) % 3, torch.arange(24) // 21),
            "balance the groups in training",
        ),
        (lambda x, y, c: (x[:, 0], y, c), "give \\(n, p\\)"),
        (lambda x, y, c: (x[:-1], y, c), "give \\(n, p\\)"),
        (lambda x, y, c: (x * torch.nan, y, c), "NaN"),
    ],
)
def test_what_cannot_be_refitted_is_said(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        refit_readout(*change(*biased_features(200, 0.2)))
