import dataclasses
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
    assert found.within_ratio[:6].min() > 0.8
    assert found.within_ratio[6:].max() < 0.2
    reading = found.context_reading
    assert reading.accuracy > 0.9
    assert 0.2 < reading.from_label < 0.4
    assert reading.correlated_share > 0.6
    assert sorted(found.ranking) == list(range(12))
    assert np.all(np.diff(found.r2[found.ranking]) <= 0)


def test_a_context_that_is_nowhere_is_not_found():
    features, labels, contexts = samples(strength=0.0)
    reading = pfdl.diagnose(features, labels, contexts).context_reading
    assert abs(reading.accuracy - reading.from_label) < 0.1
    assert np.isnan(reading.correlated_share)


def test_a_context_that_only_one_independent_feature_knows_lies_in_the_rest():
    generator = np.random.default_rng(1)
    contexts = generator.integers(3, size=900)
    features = generator.normal(size=(900, 6))
    features[:, 0] += 2.0 * contexts
    reading = pfdl.diagnose(features, np.zeros(900, dtype=int), contexts).context_reading
    assert reading.accuracy > reading.from_label + 0.2
    assert reading.from_rest > reading.from_correlated + 0.1
    assert abs(reading.correlated_share) < 0.05


def test_correlations_before_and_after():
    features, labels, _ = samples()
    found = pfdl.diagnose(features, labels)
    np.testing.assert_allclose(found.correlation, np.corrcoef(features.T), atol=1e-12)
    before, after = (np.abs(m - np.eye(12)).mean() for m in (found.correlation, found.remaining_correlation))
    assert after < before
    rests = features - np.column_stack(
        [
            np.column_stack([np.ones(600), np.delete(features, j, 1)])
            @ np.linalg.lstsq(np.column_stack([np.ones(600), np.delete(features, j, 1)]), features[:, j])[0]
            for j in range(12)
        ]
    )
    # As the attribute says: the rests correlate by minus the partial correlation.
    opposite = -np.corrcoef(rests.T) + 2 * np.eye(12)
    np.testing.assert_allclose(found.remaining_correlation, opposite, atol=0.02)


def test_samples_that_carry_the_correlated_part():
    generator = np.random.default_rng(2)
    features = generator.normal(size=(300, 10))
    features[:20] += 5 * generator.normal(size=(20, 1))  # where all features move together
    found = pfdl.diagnose(features, np.arange(300) % 2)
    assert np.isin(found.most_correlated_samples(12), np.arange(20)).mean() > 0.9
    assert found.correlated_part[found.least_correlated_samples(1)[0]] == found.correlated_part.min()


def test_accuracy_by_context_and_the_worst_group():
    features, labels, contexts = samples(n=40)
    names, places = np.array(["cat", "dog", "<script>"])[labels], np.array(list("abcd"))[contexts]
    predictions = np.where((names == "dog") & (places == "b"), "cat", names)
    found = pfdl.diagnose(features, names, places, predictions=predictions).accuracies
    assert (found.worst_group.label, found.worst_group.context, found.worst_group.accuracy) == ("dog", "b", 0)
    assert found.by_label["cat"] == 1
    assert found.by_context["b"] == np.mean(predictions[places == "b"] == names[places == "b"])
    assert sum(group.samples for group in found.groups) == 40
    without = pfdl.diagnose(features, names, predictions=predictions).accuracies
    assert without.by_context == {}
    assert without.worst_group.label == "dog"


def test_tensors_of_any_kind_and_the_same_twice():
    features, labels, contexts = samples(n=100)
    found = pfdl.diagnose(features.astype(np.float32), labels, contexts)
    again = pfdl.diagnose(
        torch.tensor(features, dtype=torch.float32, requires_grad=True), torch.tensor(labels), list(contexts)
    )
    for field in dataclasses.fields(found):
        np.testing.assert_equal(getattr(again, field.name), getattr(found, field.name))
    coarse = pfdl.diagnose(torch.tensor(features).bfloat16(), labels)
    np.testing.assert_allclose(coarse.r2, found.r2, atol=0.02)


def test_the_verdict_and_the_table_say_it():
    features, labels, contexts = samples()
    training = {(label, context): 50 if context == label else 10 for label in range(3) for context in range(4)}
    found = pfdl.diagnose(features, labels, contexts, predictions=labels, training=training)
    assert found.answer == "no"
    words = " ".join(found.verdict())
    for part in (
        "No, the model does not rely on the context: 100 % right",
        "the features show the context, but the answers do not depend on it",
        "Accuracy is 100 % on all images",
        "predictable from the others (median R²",
        "Within a class the median R²",
        "if the mixture is reversed",
    ):
        assert part in words
    assert found.frame().index.tolist() == found.ranking.tolist()
    assert found.summary()["contexts read from the features"] == found.context_reading.accuracy


def test_without_contexts_or_training_there_is_no_answer():
    features, labels, contexts = samples()
    for given, reason in (
        ({}, "no predictions are given"),
        ({"predictions": labels}, "no contexts are known"),
        ({"predictions": labels, "contexts": contexts}, "do not go together in these images"),
        (
            {"predictions": labels, "contexts": np.zeros(600), "usual_contexts": dict.fromkeys(range(3), 0)},
            "all images",
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
        features, labels, contexts = samples(n=80, seed=seed, strength=rng.choice([0.0, 0.3, 3.0]), contexts=3)
        follows = rng.random(80) < rng.choice([0.0, 0.3, 1.0])
        predictions = np.where(follows, contexts, labels)
        training = {(label, context): 90 if context == label else 5 for label in range(3) for context in range(3)}
        found = pfdl.diagnose(features, labels, contexts, predictions=predictions, training=training)
        words = " ".join(found.verdict())
        assert max(float(number) for number in re.findall(r"([0-9.]+) %", words)) <= 100
        answers = ("Yes, the model relies", "No, the model does not rely", "Cannot tell whether")
        assert sum(answer in words for answer in answers) == 1
        assert ("answers do not depend" in words) <= (found.answer == "no")
        assert ("Wrong answers follow the context" in words) <= (found.answer == "yes")
        share = found.context_reading.correlated_share
        assert np.isnan(share) or 0 <= share <= 1


def test_dead_features_are_no_obstacle():
    features, labels, contexts = samples()
    features[:, 3] = 0
    found = pfdl.diagnose(features, labels, contexts)
    assert np.isnan(found.r2[3])
    assert found.ranking[-1] == 3
    assert 3 not in found.order
    assert "1 more are constant" in " ".join(found.verdict())
    nothing = pfdl.diagnose(np.ones((5, 3)), np.arange(5) % 2, np.arange(5) % 2)
    assert "nothing to predict" in nothing.verdict()[-1]
    assert nothing.context_reading is None
    assert nothing.summary()["features in the largest cluster"] == 0


def test_features_that_follow_the_class_wholly():
    labels = np.arange(60) % 3
    features = np.random.default_rng(0).normal(size=(3, 4))[labels]
    found = pfdl.diagnose(features, labels)
    assert np.isnan(found.r2_within_class).all()
    assert (found.within_ratio == 0).all()


@pytest.mark.parametrize(
    ("features", "labels", "options", "sentence"),
    [
        (np.zeros(4), np.zeros(4), {}, "give \\(samples, features\\)"),
        (np.zeros((2, 5)), np.zeros(2), {}, "at least 3 samples and 2 features"),
        (np.zeros((4, 2), dtype=str), np.zeros(4), {}, "give numbers"),
        (np.full((4, 2), np.nan), np.zeros(4), {}, "features\\[0, 0\\] is nan"),
        (np.zeros((4, 2)), np.zeros(3), {}, "labels have shape \\(3,\\), but there are 4 samples"),
        (np.zeros((4, 2)), np.full(4, 0.5), {}, "such as 0.5; give names or classes"),
        (np.zeros((4, 2)), np.zeros(4), {"contexts": "ab"}, "contexts have shape"),
        (np.zeros((4, 2)), np.zeros(4), {"predictions": [1]}, "predictions have shape"),
    ],
)
def test_a_mistake_is_a_sentence(features, labels, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        pfdl.diagnose(features, labels, **options)
