"""Inferred contexts are compared with true ones, models by their worst group and by scikit-learn's
scores.
"""

from itertools import product

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score, balanced_accuracy_score, f1_score, roc_auc_score

from pfdl.contexts import group_accuracy, group_report, measure_scores, worst_group_accuracy


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
    within = [
        adjusted_rand_score(true[labels == label], found[labels == label]) for label in range(3)
    ]
    assert report.ari == pytest.approx(np.mean(within))
    right = found == true
    assert report.accuracy == pytest.approx(right.mean())
    groups = [
        right[(labels == label) & (true == context)].mean()
        for label, context in product(range(3), repeat=2)
    ]
    assert report.worst_group_accuracy == pytest.approx(min(groups))
    minority = true != labels
    guessed = found != labels
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
    # The largest stays
    assert worst_group_accuracy(predictions, labels, contexts, min_samples=50) == 1.0
    scores = np.eye(2)[predictions]
    for same in (
        torch.from_numpy(scores),
        np.array(predictions, dtype=object),
        np.array(predictions)[:, None],
    ):
        assert group_accuracy(same, labels, contexts) == found


def made(classes=4, n=300):
    rng = np.random.default_rng(0)
    labels, contexts = rng.integers(classes, size=n), rng.integers(3, size=n)
    scores = rng.normal(size=(n, classes)) + np.eye(classes)[labels]
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return probabilities, labels, contexts


def naive_calibration(probabilities, labels, bins=15):
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    total = 0.0
    for number in range(bins):
        inside = (confidence > number / bins) & (confidence <= (number + 1) / bins)
        if inside.any():
            total += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    return total


def test_scores_are_those_of_scikit_learn_and_of_a_plain_loop():
    probabilities, labels, contexts = made()
    found = measure_scores(probabilities, labels, contexts)
    predicted = probabilities.argmax(axis=1)
    balanced = balanced_accuracy_score(labels, predicted)
    assert found.balanced_accuracy == pytest.approx(balanced, abs=1e-6)
    assert found.macro_f1 == pytest.approx(f1_score(labels, predicted, average="macro"), abs=1e-6)
    auroc = roc_auc_score(labels, probabilities, multi_class="ovr")
    assert found.auroc == pytest.approx(auroc, abs=1e-6)
    precisions = []
    for label, context in product(range(4), range(3)):
        taken = (predicted == label) & (contexts == context)
        if taken.any():
            precisions.append((labels[taken] == label).mean())
    assert found.worst_group_precision == pytest.approx(min(precisions))
    assert found.calibration_error == pytest.approx(
        naive_calibration(probabilities, labels), abs=1e-5
    )
    sure = np.eye(2)
    assert measure_scores(sure, [0, 1]).calibration_error == 0
    assert measure_scores(sure, [1, 0]).calibration_error == 1


def test_a_class_without_samples_does_not_count():
    probabilities, labels, _ = made()
    kept = labels != 2
    found = measure_scores(probabilities[kept], labels[kept])
    predicted = probabilities[kept].argmax(axis=1)
    recalls = [(predicted[labels[kept] == label] == label).mean() for label in (0, 1, 3)]
    assert found.balanced_accuracy == pytest.approx(np.mean(recalls), abs=1e-6)
    only = measure_scores(probabilities[labels == 1], labels[labels == 1])
    assert np.isnan(only.auroc)


@pytest.mark.parametrize(
    ("measure", "arguments", "message"),
    [
        (
            group_report,
            ([0, 1], [0, 1, 2], [0, 1]),
            r"the shapes differ: labels \(2,\), contexts \(3,\)",
        ),
        (group_report, ([], [], []), "there are no samples"),
        (group_accuracy, ([0, 1, 1], [0, 1], [0, 1]), r"predictions have shape \(3,\)"),
        (
            group_accuracy,
            (["0", "1"], [0, 1], ["a", "b"]),
            "predictions are <U1 and labels int64; give both as num",
        ),
        (group_accuracy, ([0.0, np.nan], [0, 1], ["a", "b"]), "1 predictions are NaN"),
        (
            group_accuracy,
            ([[0.0, np.nan], [0.0, 1.0]], [1, 1], ["a", "b"]),
            "1 predictions are NaN",
        ),
        (
            group_accuracy,
            ([0.2, 0.9], [0, 1], ["a", "b"]),
            "predictions hold 0.2; give classes, or scores",
        ),
        (
            group_accuracy,
            (np.eye(2), [1, 2], ["a", "b"]),
            "labels go up to 2; scores of 2 classes number these from 0",
        ),
    ],
)
def test_what_does_not_fit_is_refused(measure, arguments, message):
    with pytest.raises(ValueError, match=message):
        measure(*arguments)
