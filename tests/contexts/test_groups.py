import numpy as np
import pytest

from pfdl.contexts.groups import GroupAccuracy, count_groups, measure_accuracy


def draw(seed=0, n=500):
    rng = np.random.default_rng(seed)
    labels, contexts = (
        np.array(["cat", "dog", "owl"])[rng.integers(3, size=n)],
        rng.integers(4, size=n),
    )
    return rng.random(n) < 0.6, labels, contexts


def test_accuracies_are_those_of_a_plain_loop():
    right, labels, contexts = draw()
    found = measure_accuracy(right, labels, contexts)
    assert found.overall == right.mean()
    for label in ("cat", "dog", "owl"):
        assert found.by_label[label] == pytest.approx(right[labels == label].mean())
    for context in range(4):
        assert found.by_context[context] == pytest.approx(right[contexts == context].mean())
    assert len(found.groups) == 12
    for group in found.groups:
        cell = right[(labels == group.label) & (contexts == group.context)]
        assert (group.accuracy, group.samples) == (pytest.approx(cell.mean()), len(cell))
    assert found.worst_group.accuracy == min(group.accuracy for group in found.groups)
    assert found.average_over_groups == pytest.approx(
        np.mean([group.accuracy for group in found.groups])
    )


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
