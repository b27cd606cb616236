"""A short training is misled by a shortcut; by hard images and by wrong labels it only errs."""

import numpy as np
import pytest

from pfdl.contexts import find_contexts, group_report
from pfdl.contexts.misled import (
    LEAST_ASSOCIATION,
    LEAST_SHARED,
    LEAST_TOLD,
    RIDGES_OF_CONTEXT,
    association,
    find_misled,
    measure_mistakes,
    seek,
    two_modes,
)
from pfdl.contexts.probe import LeftOut, RidgePath, equal_classes, equal_groups, margins_of


def objects(
    seed=0, samples=800, features=400, context=0.45, usual=0.9, wrong=0.0, classes=2, of_class=0.2
):
    """Classes of objects in as many contexts, each moving many features by a little.

    Returns:
        Features of mean 0 and variance about 1, labels, and contexts.
    """
    rng = np.random.default_rng(seed)
    true = rng.integers(classes, size=samples)
    shift = rng.integers(1, classes, size=samples)
    contexts = np.where(rng.random(samples) < usual, true, (true + shift) % classes)
    directions = rng.choice([-1.0, 1.0], size=(2, classes, features))
    directions -= directions.mean(axis=1, keepdims=True)
    values = rng.normal(size=(samples, features))
    values += of_class * directions[0][true] + context * directions[1][contexts]
    flipped = (true + rng.integers(1, classes, size=samples)) % classes
    return values, np.where(rng.random(samples) < wrong, flipped, true), contexts


def in_contexts_of_their_own(**changes):
    """Return features whose contexts are as strong, but as frequent in both classes."""
    return objects(usual=0.5, **changes)


@pytest.mark.parametrize("ridge", [0.1, 3.0])
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("columns", [12, 50])
def test_what_is_left_out_is_as_by_fits_without_it(ridge, within, columns):
    rng = np.random.default_rng(0)
    features, labels, _ = objects(samples=30, features=columns)
    features -= features.mean(axis=0)
    weight = rng.uniform(0.5, 2.0, size=30)
    target = rng.normal(size=(30, 2))
    block = labels if within else np.zeros(30, dtype=int)
    found = LeftOut(features).scores(target, weight, ridge, labels if within else None)
    share = weight / weight.sum()
    penalty = np.diag([ridge] * columns + [0.0] * (block.max() + 1))
    table = np.hstack([features, np.eye(block.max() + 1)[block]])
    for row in range(0, 30, 7):
        kept = np.arange(30) != row
        weighted = table[kept].T * share[kept]
        coefficients = np.linalg.solve(weighted @ table[kept] + penalty, weighted @ target[kept])
        np.testing.assert_allclose(found[row], table[row] @ coefficients, rtol=1e-8)


def test_a_fit_to_all_is_that_of_the_ridge_path():
    features, labels, _ = objects(samples=60, features=20)
    weight = equal_classes(labels, 2)
    left = LeftOut(features).scores(np.eye(2)[labels], weight, 10.0)
    whole = RidgePath(features, labels, weight, 2).scores(features, [10.0])[0]
    np.testing.assert_allclose(left, whole, atol=0.1)  # one sample of 60 changes little


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("samples", [800, 500])
def test_a_shortcut_that_moves_many_features_is_found(seed, samples):
    """Of 500 samples about 25 of each class are in the other's context."""
    features, labels, contexts = objects(seed, samples=samples)
    found = find_contexts(features, labels, method="misled", seed=seed)
    assert found.method == "misled", found.sentence
    scores = group_report(labels, found.contexts, contexts)
    assert scores.minority_precision > 0.9
    assert scores.minority_recall > 0.8


def test_rare_samples_that_no_training_mistakes_are_found_by_what_they_share():
    features, labels, contexts = objects(context=0.4, of_class=0.5, samples=500)
    fits = LeftOut(features)
    scores = fits.scores(np.eye(2)[labels], equal_classes(labels, 2), 10.0)
    rare = labels != contexts
    assert (margins_of(scores, labels)[0][rare] < 0).mean() < 0.5
    found = seek(fits, labels, RIDGES_OF_CONTEXT[1])
    assert (found == contexts)[rare].mean() > 0.9


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("wrong", [0.0, 0.05, 0.1])
def test_contexts_that_do_not_go_with_the_class_and_wrong_labels_are_none(seed, wrong):
    features, labels, _ = in_contexts_of_their_own(seed=seed, wrong=wrong)
    found = find_contexts(features, labels, seed=seed)
    assert found.number == 1, found.sentence


def test_without_a_shortcut_the_search_ends_at_a_difference_that_all_classes_have():
    features, labels, contexts = in_contexts_of_their_own(context=0.6)
    found = seek(LeftOut(features), labels, RIDGES_OF_CONTEXT[1])
    assert association(labels, found) < 0.3
    apart = (found != labels) == (contexts != labels)
    assert max(apart.mean(), 1 - apart.mean()) > 0.9


def test_wrong_labels_cannot_be_told_from_the_class_that_they_are_of():
    features, labels, _ = in_contexts_of_their_own(context=0.0, wrong=0.1, of_class=0.5)
    found = find_misled(features, labels).contexts
    assert association(labels, found) > LEAST_ASSOCIATION
    assert measure_mistakes(features, labels, found).told < LEAST_TOLD
    trial = find_contexts(features, labels, method="misled").tried[0]
    assert not trial.accepted
    assert "wrong labels" in trial.reason


def test_several_classes_have_several_contexts():
    features, labels, contexts = objects(classes=4, samples=1200, context=0.5)
    found = find_contexts(features, labels, method="misled")
    assert found.number == 4, found.sentence
    scores = group_report(labels, found.contexts, contexts)
    assert scores.minority_precision > 0.8
    assert scores.minority_recall > 0.6


def kinds_of_single_classes(seed=0, samples=1600, classes=4):
    """Classes of three kinds, 80, 15 and 5 % of it, that no other class has."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=samples)
    kinds = rng.choice(3, size=samples, p=[0.8, 0.15, 0.05])
    features = rng.normal(size=(samples, 64)) + 0.35 * rng.normal(size=(classes, 64))[labels]
    return features + rng.normal(size=(classes, 3, 64))[labels, kinds], labels


def test_what_tells_a_context_in_some_classes_tells_it_in_the_others():
    features, labels, contexts = objects()
    assert measure_mistakes(features, labels, contexts).shared > 0.95
    for seed in range(2):
        features, labels = kinds_of_single_classes(seed)
        features = (features - features.mean(axis=0)) / features.std(axis=0)
        found = find_misled(features, labels).contexts
        assert measure_mistakes(features, labels, found).shared < LEAST_SHARED
        trial = find_contexts(features, labels, method="misled").tried[0]
        assert not trial.accepted


def test_two_modes_are_found_and_one_is_not_cut():
    rng = np.random.default_rng(0)
    one = rng.normal(size=400)
    two = np.where(np.arange(400) < 40, one - 6.0, one)
    modes = two_modes(two)
    assert ((modes.probability_low(two) > 0.5) == (np.arange(400) < 40)).mean() > 0.99
    assert modes.share == pytest.approx(0.1, abs=0.005)
    assert modes.high - modes.low == pytest.approx(6.0, abs=0.3)
    assert two_modes(np.ones(20)) is None
    assert two_modes(np.arange(5.0)) is None


def test_of_many_samples_some_are_fitted_to_and_all_are_assigned(monkeypatch):
    features, labels, contexts = objects(samples=1200)
    monkeypatch.setattr("pfdl.contexts.misled.FITTED", 800)
    proposal = find_misled(features, labels)
    assert proposal.contexts.shape == (1200,)
    assert (proposal.contexts == contexts).mean() > 0.9
    assert (proposal.assign(features, labels) == contexts).mean() > 0.9
    weights = equal_groups(labels, proposal.contexts)
    assert np.isfinite(weights).all()
