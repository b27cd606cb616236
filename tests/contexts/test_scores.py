"""Scores beside accuracy, against scikit-learn and plain loops."""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

from pfdl.contexts import measure_scores


def made(classes=4, n=300):
    rng = np.random.default_rng(0)
    labels, contexts = rng.integers(classes, size=n), rng.integers(3, size=n)
    scores = rng.normal(size=(n, classes)) + np.eye(classes)[labels]
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return probabilities, labels, contexts


def naive_calibration(probabilities, labels, bins=15):
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    total = 0.0
    for number in range(bins):
        inside = (confidence > number / bins) & (confidence <= (number + 1) / bins)
        if inside.any():
            total += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    return total


def test_scores_are_those_of_scikit_learn_and_of_a_plain_loop():
    probabilities, labels, contexts = made()
    found, predicted = measure_scores(probabilities, labels, contexts), probabilities.argmax(axis=1)
    assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(labels, predicted), abs=1e-6)
    assert found.macro_f1 == pytest.approx(f1_score(labels, predicted, average="macro"), abs=1e-6)
    assert found.auroc == pytest.approx(roc_auc_score(labels, probabilities, multi_class="ovr"), abs=1e-6)
    precisions = [
        (labels[taken] == label).mean()
        for label in range(4)
        for context in range(3)
        if (taken := (predicted == label) & (contexts == context)).any()
    ]
    assert found.worst_group_precision == pytest.approx(min(precisions))
    assert found.calibration_error == pytest.approx(naive_calibration(probabilities, labels), abs=1e-5)
    sure = np.eye(2)
    assert measure_scores(sure, [0, 1]).calibration_error == 0
    assert measure_scores(sure, [1, 0]).calibration_error == 1


def test_a_class_without_samples_does_not_count():
    probabilities, labels, _ = made()
    kept = labels != 2
    found, predicted = measure_scores(probabilities[kept], labels[kept]), probabilities[kept].argmax(axis=1)
    recalls = [(predicted[labels[kept] == label] == label).mean() for label in (0, 1, 3)]
    assert found.balanced_accuracy == pytest.approx(np.mean(recalls), abs=1e-6)
    only = measure_scores(probabilities[labels == 1], labels[labels == 1])
    assert np.isnan(only.auroc)


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        (np.ones((3, 2)), [0, 1], r"probabilities have shape \(3, 2\) and labels \(2,\)"),
        (np.ones((2, 2)), [0, 2], "the number of one of these classes"),
        (np.full((2, 2), np.nan), [0, 1], "probabilities have a NaN"),
    ],
)
def test_what_does_not_fit_is_refused(probabilities, labels, message):
    with pytest.raises(ValueError, match=message):
        measure_scores(probabilities, labels)
