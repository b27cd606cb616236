"""A short training is misled by a shortcut; by hard images and by wrong labels it only errs."""

import numpy as np
import pytest

from pfdl.contexts import find_contexts, group_report
from pfdl.contexts.misled import (
    LEAST_APART,
    LEAST_TOLD,
    _two_modes,
    find_misled,
    measure_mistakes,
)


def objects(seed=0, samples=800, features=400, context=0.45, usual=0.9, wrong=0.0):
    """Two classes of objects in two contexts, each moving many features by a little.

    Returns:
        Features of mean 0 and variance about 1, labels, and contexts.
    """
    rng = np.random.default_rng(seed)
    true = rng.integers(2, size=samples)
    contexts = np.where(rng.random(samples) < usual, true, 1 - true)
    directions = rng.choice([-1.0, 1.0], size=(2, features))
    values = rng.normal(size=(samples, features))
    values += 0.2 * np.outer(2 * true - 1, directions[0])
    values += context * np.outer(2 * contexts - 1, directions[1])
    labels = np.where(rng.random(samples) < wrong, 1 - true, true)
    return values, labels, contexts


def measured(**changes):
    features, labels, contexts = objects(**changes)
    proposal = find_misled(features, labels)
    return proposal, measure_mistakes(features, labels, proposal.contexts, 0), labels, contexts


@pytest.mark.parametrize("seed", range(2))
def test_a_shortcut_that_moves_many_features_is_found(seed):
    features, labels, contexts = objects(seed)
    found = find_contexts(features, labels, method="misled", seed=seed)
    assert found.method == "misled", found.sentence
    scores = group_report(labels, found.contexts, contexts)
    assert scores.minority_precision > 0.9
    assert scores.minority_recall > 0.6


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("wrong", [0.0, 0.05, 0.1])
def test_contexts_that_do_not_go_with_the_class_and_wrong_labels_are_none(seed, wrong):
    features, labels, _ = objects(seed, usual=0.5, wrong=wrong)
    found = find_contexts(features, labels, seed=seed)
    assert found.number == 1, found.sentence


def test_in_a_shortcut_samples_stand_apart_and_are_not_what_they_are_taken_for():
    proposal, mistakes, labels, contexts = measured()
    assert proposal.stability > 0.8
    assert mistakes.apart > LEAST_APART
    assert mistakes.told > LEAST_TOLD
    rare = contexts != labels
    assert mistakes.after[rare].mean() > mistakes.before[rare].mean() + 0.2


def test_wrong_labels_stand_apart_and_cannot_be_told():
    _, mistakes, _, _ = measured(usual=0.5, context=0.1, wrong=0.1)
    assert mistakes.apart > LEAST_APART
    assert mistakes.told < LEAST_TOLD


def test_two_modes_are_measured_per_sample():
    rng = np.random.default_rng(0)
    one = rng.normal(size=400)
    two = np.where(np.arange(400) < 40, one - 6.0, one)
    assert _two_modes(one) < 0.05
    assert _two_modes(two) > 0.3
    assert _two_modes(np.tile(two, 4)) == pytest.approx(_two_modes(two), abs=0.02)
    assert _two_modes(np.ones(20)) == 0.0


def test_of_many_samples_some_are_fitted_to_and_all_are_assigned(monkeypatch):
    features, labels, contexts = objects(samples=1200)
    monkeypatch.setattr("pfdl.contexts.misled.FITTED", 800)
    proposal = find_misled(features, labels)
    assert proposal.contexts.shape == (1200,)
    assert (proposal.contexts == contexts).mean() > 0.9
    assert (proposal.assign(features, labels) == contexts).mean() > 0.9
