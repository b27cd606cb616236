"""Inferred contexts are compared with true ones, and models by their worst group."""

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from pfdl.contexts import group_accuracy, group_report, worst_group_accuracy


def drawn(seed=0, samples=500):
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=samples)
    true = np.where(rng.random(samples) < 0.8, labels, rng.integers(3, size=samples))
    return rng, labels, true


def test_other_numbers_for_the_same_contexts_are_perfect():
    _, labels, true = drawn()
    report = group_report(labels, np.array(["c", "a", "b"])[true], true)
    assert (report.ari, report.accuracy, report.worst_group_accuracy) == (1.0, 1.0, 1.0)
    assert (report.minority_precision, report.minority_recall) == (1.0, 1.0)


def test_scores_are_their_definitions():
    rng, labels, true = drawn()
    found = np.where(rng.random(500) < 0.85, true, rng.integers(3, size=500))
    report = group_report(torch.from_numpy(labels), found, true)
    within = [adjusted_rand_score(true[labels == label], found[labels == label]) for label in range(3)]
    assert report.ari == pytest.approx(np.mean(within))
    right = found == true
    assert report.accuracy == pytest.approx(right.mean())
    groups = [right[(labels == label) & (true == context)].mean() for label in range(3) for context in range(3)]
    assert report.worst_group_accuracy == pytest.approx(min(groups))
    minority, guessed = true != labels, found != labels
    assert report.minority_precision == pytest.approx((minority & guessed).sum() / guessed.sum())
    assert report.minority_recall == pytest.approx((minority & guessed).sum() / minority.sum())


def test_finding_nothing_scores_nothing():
    _, labels, true = drawn()
    report = group_report(labels, np.zeros(500), true)
    assert report.ari == 0.0
    assert report.worst_group_accuracy == 0.0
    assert np.isnan(report.minority_precision)
    assert report.minority_recall == 0.0


def test_accuracies_are_named_apart():
    labels, contexts = [0] * 6 + [1] * 4, ["a"] * 5 + ["b"] + ["b"] * 4
    predictions = [0] * 5 + [1] + [1, 1, 1, 0]
    found = group_accuracy(predictions, labels, contexts)
    assert found.worst_group.accuracy == 0.0
    assert found.average_over_groups == pytest.approx((1 + 0 + 0.75) / 3)
    assert found.overall == pytest.approx(0.8)
    assert worst_group_accuracy(predictions, labels, contexts, min_samples=2) == 0.75
    assert worst_group_accuracy(predictions, labels, contexts, min_samples=50) == 1.0  # the largest stays
    scores = np.eye(2)[predictions]
    assert group_accuracy(torch.from_numpy(scores), labels, contexts) == found


@pytest.mark.parametrize(
    ("measure", "arguments", "message"),
    [
        (group_report, ([0, 1], [0, 1, 2], [0, 1]), r"the shapes differ: labels \(2,\), contexts \(3,\)"),
        (group_report, ([], [], []), "there are no samples"),
        (group_accuracy, ([0, 1, 1], [0, 1], [0, 1]), r"predictions have shape \(3,\)"),
        (group_accuracy, (["0", "1"], [0, 1], ["a", "b"]), "predictions are <U1 and labels int64, which are never"),
        (group_accuracy, ([0.0, np.nan], [0, 1], ["a", "b"]), "1 predictions are NaN"),
    ],
)
def test_what_does_not_fit_is_refused(measure, arguments, message):
    with pytest.raises(ValueError, match=message):
        measure(*arguments)
