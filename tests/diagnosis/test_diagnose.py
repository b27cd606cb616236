import dataclasses
import itertools
import re

import numpy as np
import pytest
import torch

import pfdl


def samples(n=600, p=12, seed=0, strength=3.0, classes=3, contexts=4):
    """Half of the features show the context, the other half the class."""
    generator = np.random.default_rng(seed)
    labels, where = generator.integers(classes, size=n), generator.integers(contexts, size=n)
    features = generator.normal(size=(n, p))
    features[:, : p // 2] += strength * generator.normal(size=(contexts, p // 2))[where]
    features[:, p // 2 :] += 3 * generator.normal(size=(classes, p - p // 2))[labels]
    return features, labels, where


def test_features_of_the_context_are_distinguished_from_features_of_the_class():
    features, labels, contexts = samples()
    found = pfdl.diagnose(features, labels, contexts)
    assert np.median(found.r2) > 0.5
    within = found.r2_within_class / found.r2
    assert within[:6].min() > 0.8
    assert within[6:].max() < 0.2


def test_tensors_of_any_kind_and_the_same_twice():
    features, labels, contexts = samples(n=100)
    found = pfdl.diagnose(features.astype(np.float32), labels, contexts)
    again = pfdl.diagnose(
        torch.tensor(features, dtype=torch.float32, requires_grad=True),
        torch.tensor(labels),
        list(contexts),
    )
    for field in dataclasses.fields(found):
        np.testing.assert_equal(getattr(again, field.name), getattr(found, field.name))
    coarse = pfdl.diagnose(torch.tensor(features).bfloat16(), labels)
    np.testing.assert_allclose(coarse.r2, found.r2, atol=0.02)


def test_without_contexts_or_training_there_is_no_answer():
    features, labels, contexts = samples()
    even = dict.fromkeys(itertools.product(range(3), range(4)), 9)
    for given, reason in (
        ({}, "no predictions are given"),
        ({"predictions": labels}, "no contexts are known"),
        ({"predictions": labels, "contexts": contexts}, "do not go together in these images"),
        (
            {"predictions": labels, "contexts": labels, "training": {(k, k): 9 for k in range(3)}},
            "all images",
        ),
        (
            {"predictions": labels, "contexts": contexts, "training": even},
            "no class has a usual context in training",
        ),
    ):
        found = pfdl.diagnose(features, labels, **given)
        assert (found.answer, found.reliance) == ("cannot tell", None)
        assert reason in found.verdict()[0]


def test_samples_in_which_class_and_context_go_together_need_no_training_counts():
    features, labels, _ = samples(contexts=3)
    chosen = np.random.default_rng(3).random(600) < 0.7
    contexts = np.where(chosen, labels, (labels + 1) % 3)
    found = pfdl.diagnose(features, labels, contexts, predictions=contexts)
    assert found.answer == "yes"
    assert found.reliance.effect == pytest.approx(1)
    assert found.shift.accuracy[0] == pytest.approx(np.mean(labels == contexts), abs=0.01)


def test_no_sentence_contradicts_the_answer_and_no_percentage_exceeds_100():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        features, labels, contexts = samples(
            n=80, seed=seed, strength=rng.choice([0.0, 0.3, 3.0]), contexts=3
        )
        follows = rng.random(80) < rng.choice([0.0, 0.3, 1.0])
        predictions = np.where(follows, contexts, labels)
        training = {
            (label, context): 90 if context == label else 5
            for label in range(3)
            for context in range(3)
        }
        found = pfdl.diagnose(
            features, labels, contexts, predictions=predictions, training=training
        )
        words = " ".join(found.verdict())
        assert max(float(number) for number in re.findall(r"([0-9.]+) %", words)) <= 100
        answers = ("Yes, the model relies", "No, the model does not rely", "Cannot tell whether")
        assert sum(answer in words for answer in answers) == 1


def test_dead_features_are_no_obstacle():
    features, labels, contexts = samples()
    features[:, 3] = 0
    found = pfdl.diagnose(features, labels, contexts)
    assert np.isnan(found.r2[3])
    assert "1 more are constant" in " ".join(found.verdict())
    nothing = pfdl.diagnose(np.ones((5, 3)), np.arange(5) % 2, np.arange(5) % 2)
    assert "nothing to predict" in nothing.verdict()[-1]
    by_class = pfdl.diagnose(np.random.default_rng(0).normal(size=(3, 4))[labels], labels)
    assert np.isnan(by_class.r2_within_class).all()


@pytest.mark.parametrize(
    ("features", "labels", "options", "sentence"),
    [
        (np.zeros(4), np.zeros(4), {}, "Expected 2D array"),
        (np.zeros((2, 5)), np.zeros(2), {}, "a minimum of 3 is required"),
        (np.zeros((4, 2), dtype=str), np.zeros(4), {}, "could not convert string"),
        (np.full((4, 2), np.nan), np.zeros(4), {}, "features contains NaN"),
        (np.zeros((4, 2)), np.zeros(3), {}, "labels have shape \\(3,\\), but there are 4 samples"),
        (np.zeros((4, 2)), np.full(4, 0.5), {}, "such as 0.5; give names or classes"),
        (np.zeros((4, 2)), np.zeros(4), {"contexts": "ab"}, "contexts have shape"),
        (np.zeros((4, 2)), np.zeros(4), {"predictions": [1]}, "predictions have shape"),
        (
            np.zeros((4, 2)),
            np.zeros(4),
            {"predictions": list("0000")},
            "give both as numbers or as names",
        ),
    ],
)
def test_a_mistake_is_a_sentence(features, labels, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        pfdl.diagnose(features, labels, **options)
