import numpy as np
import pytest

from pfdl.contexts.groups import GroupAccuracy, count_groups, measure_accuracy

CLASSES = ["cat", "dog", "owl"]


def draw(seed=0, n=500):
    rng = np.random.default_rng(seed)
    labels = np.array(CLASSES)[rng.integers(3, size=n)]
    contexts = rng.integers(4, size=n)
    return rng.random(n) < 0.6, labels, contexts


def test_accuracies_by_class_and_by_context_are_those_of_a_plain_loop():
    right, labels, contexts = draw()
    found = measure_accuracy(right, labels, contexts)
    assert found.overall == right.mean()
    assert found.by_label == pytest.approx({name: right[labels == name].mean() for name in CLASSES})
    by_context = {context: right[contexts == context].mean() for context in range(4)}
    assert found.by_context == pytest.approx(by_context)


def test_accuracies_of_groups_are_those_of_a_plain_loop():
    right, labels, contexts = draw()
    found = measure_accuracy(right, labels, contexts)
    assert len(found.groups) == 12
    for group in found.groups:
        cell = right[(labels == group.label) & (contexts == group.context)]
        assert (group.accuracy, group.samples) == (pytest.approx(cell.mean()), len(cell))


def test_the_worst_group_and_the_average_are_those_of_the_groups():
    found = measure_accuracy(*draw())
    accuracies = [group.accuracy for group in found.groups]
    assert found.worst_group.accuracy == min(accuracies)
    assert found.average_over_groups == pytest.approx(np.mean(accuracies))


def test_the_average_in_a_mixture():
    right, labels, contexts = draw()
    found = measure_accuracy(right, labels, contexts)
    assert found.average_in(count_groups(labels, contexts)) == pytest.approx(found.overall)
    assert found.average_in({("cat", 1): 3.0, ("dog", 2): 0.0}) == pytest.approx(
        right[(labels == "cat") & (contexts == 1)].mean()
    )
    assert np.isnan(found.average_in({("cat", 1): 3.0, ("cow", 1): 1.0}))
    assert np.isnan(found.average_in({}))


def test_without_contexts_the_groups_are_the_classes():
    right, labels, _ = draw()
    found = measure_accuracy(right, labels, None)
    assert found.by_context == {}
    assert [(group.label, group.context) for group in found.groups] == [
        ("cat", ""),
        ("dog", ""),
        ("owl", ""),
    ]
    assert {label: n for (label, _), n in count_groups(labels, None).items()} == {
        label: np.sum(labels == label) for label in ("cat", "dog", "owl")
    }


def test_ten_right_of_ten_are_not_certain():
    assert GroupAccuracy("cat", "snow", 1.0, 10).variance > 0
    many = GroupAccuracy("cat", "snow", 0.3, 10_000)
    assert many.variance == pytest.approx(0.3 * 0.7 / 10_000, rel=0.01)
