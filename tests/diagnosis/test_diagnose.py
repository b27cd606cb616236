import dataclasses
import itertools
import re
from itertools import product

import numpy as np
import pytest
import torch

import pfdl
from pfdl.diagnosis import Gap


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
        ({"predictions": labels, "contexts": contexts}, "which contexts went with which class"),
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


@pytest.mark.parametrize("agreement", [0.1, 0.5, 0.9])
def test_only_the_training_mixture_says_what_is_usual(agreement):
    """A model that looks at nothing but the context is found out whatever the tested mixture is."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=400)
    contexts = np.where(rng.random(400) < agreement, labels, 1 - labels)
    training = {(0, 0): 450, (0, 1): 50, (1, 1): 450, (1, 0): 50}
    blind = pfdl.diagnose(labels=labels, contexts=contexts, predictions=contexts)
    assert (blind.answer, blind.reliance, blind.shift) == ("cannot tell", None, None)
    assert "100 % of" in blind.verdict()[0]
    if agreement != 0.5:
        assert "if it was mixed the other way round" in blind.verdict()[0]
    told = pfdl.diagnose(labels=labels, contexts=contexts, predictions=contexts, training=training)
    assert told.answer == "yes"
    assert told.reliance.effect == pytest.approx(1)
    assert told.shift.accuracy[0] == pytest.approx(0.9)
    reversed_training = {(label, 1 - context): n for (label, context), n in training.items()}
    misled = pfdl.diagnose(
        labels=labels, contexts=contexts, predictions=contexts, training=reversed_training
    )
    assert misled.answer == "cannot tell"


def test_features_are_not_needed_and_do_not_change_the_answer():
    features, labels, contexts = samples()
    training = {(label, label): 90 for label in range(3)} | {(0, 1): 10, (1, 2): 10, (2, 0): 10}
    given = {"labels": labels, "contexts": contexts, "predictions": contexts % 3}
    without = pfdl.diagnose(**given, training=training)
    found = pfdl.diagnose(features, **given, training=training)
    assert without.reliance == found.reliance
    assert without.r2.shape == without.r2_within_class.shape == (0,)
    assert without.verdict() == found.verdict()[:-1]


def mostly_at_home():
    """Training images of three classes, each of which is usual in a context of its own."""
    groups = product(range(3), repeat=2)
    return {(label, context): 90 if context == label else 5 for label, context in groups}


def test_no_on_these_contexts_is_no_all_clear_while_test_accuracy_is_low():
    _, labels, contexts = samples(n=3000, contexts=3)
    training = mostly_at_home()
    clear = pfdl.diagnose(labels=labels, contexts=contexts, predictions=labels, training=training)
    assert clear.answer == "no"
    low = dataclasses.replace(clear, gap=Gap(0.9, 500, 0.6, 3000, in_training_mixture=0.9))
    assert low.answer == "cannot tell"
    assert "and yet test accuracy is low" in low.verdict()[0]


def test_no_sentence_contradicts_the_answer_and_no_percentage_exceeds_100():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        features, labels, contexts = samples(
            n=80, seed=seed, strength=rng.choice([0.0, 0.3, 3.0]), contexts=3
        )
        follows = rng.random(80) < rng.choice([0.0, 0.3, 1.0])
        predictions = np.where(follows, contexts, labels)
        found = pfdl.diagnose(
            features, labels, contexts, predictions=predictions, training=mostly_at_home()
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


def test_labels_are_needed():
    with pytest.raises(ValueError, match="there are no labels"):
        pfdl.diagnose(predictions=[0, 1])
    with pytest.raises(ValueError, match="there are no samples"):
        pfdl.diagnose(labels=[], predictions=[])


def test_the_page_of_a_result_has_its_figures(tmp_path):
    _, labels, contexts = samples(n=600, contexts=3)
    training = dict.fromkeys(itertools.product(range(3), range(3)), 5)
    training |= {(label, label): 90 for label in range(3)}
    found = pfdl.diagnose(labels=labels, contexts=contexts, predictions=contexts, training=training)
    page = found.save(tmp_path / "mine.html").read_text()
    assert "Yes, the model relies on the context" in page
    assert "class 0 in context 1, " in page
    assert "Accuracy if the contexts shift" in page
    unknown = pfdl.diagnose(labels=labels, contexts=contexts, predictions=contexts)
    assert "Cannot tell" in unknown.save(str(tmp_path / "unknown.htm")).read_text()
    pfdl.diagnose(labels=labels).save(tmp_path / "nothing.html")
    with pytest.raises(ValueError, match="a name that ends in"):
        found.save("page.md")
