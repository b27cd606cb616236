"""Contexts are inferred from features and labels alone, and only where they can be confirmed."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import normalized_mutual_info_score
from torch.utils.data import ChainDataset, DataLoader, TensorDataset

from pfdl import context_weights, infer_contexts
from pfdl.contexts import find_contexts, group_report, image_statistics
from pfdl.contexts.finders import AUTO, automatic_finders
from pfdl.data import SpuCoMNIST
from tests.contexts.objects import in_contexts

CLASSES = CONTEXTS = 4
objects_in_contexts = partial(in_contexts, classes=CLASSES)


def effective_share(labels, contexts):
    weights = context_weights(labels, contexts)
    return weights.sum() ** 2 / (weights**2).sum() / len(weights)


@pytest.mark.parametrize("method", ["auto", "pooled", "within"])
def test_contexts_are_found_although_classes_mostly_stand_in_one(method):
    features, labels, contexts = objects_in_contexts()
    found = find_contexts(features, labels, method=method)
    assert found.number == CONTEXTS
    assert group_report(labels, found.contexts, contexts).ari > 0.95
    assert found.tried[0].accepted
    assert found.sentence.startswith("Found 4 contexts, clusters")
    assert "they go with the class" in found.sentence


def test_what_a_short_training_gets_wrong_is_the_minority():
    features, labels, contexts = objects_in_contexts(dominant=0.95)
    found = find_contexts(features, labels, method="early")
    scores = group_report(labels, found.contexts, contexts)
    assert found.method == "early"
    assert found.number == CLASSES
    assert scores.minority_precision > 0.9
    assert scores.minority_recall > 0.9


def test_contexts_that_do_not_go_with_the_class_are_rejected():
    features, labels, contexts = objects_in_contexts(dominant=0.0)
    found = find_contexts(features, labels)
    assert found.number == 1
    assert found.method == "none"
    assert "do not go with the class" in found.sentence
    unchecked = find_contexts(features, labels, method="pooled", confirmation=0.0)
    assert normalized_mutual_info_score(unchecked.contexts, contexts) > 0.95


def test_contexts_that_no_training_follows_are_rejected():
    """The class is so easy to see that nothing is learnt from the context."""
    features, labels, _ = objects_in_contexts(of_class=5.0)
    found = find_contexts(features, labels)
    assert found.number == 1
    assert any(
        "balancing them changes the held-out accuracy" in trial.reason for trial in found.tried
    )


@pytest.mark.parametrize("load", [load_digits, load_wine, load_breast_cancer, load_iris])
def test_data_without_contexts_has_one_or_harmless_ones(load):
    features, labels = load(return_X_y=True)
    assert effective_share(labels, infer_contexts(features, labels)) > 0.95


@pytest.mark.parametrize("features", [2, 3, 8, 60])
@pytest.mark.parametrize("seed", range(3))
def test_noise_has_one_context(features, seed):
    rng = np.random.default_rng(seed)
    assert set(
        infer_contexts(rng.normal(size=(200, features)), rng.integers(3, size=200), seed=seed)
    ) == {0}


def hostile():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(60, 8))
    labels = np.arange(60) % 3
    dead = noise.copy()
    dead[:, 2:] = 4.0
    few_values = rng.integers(2, size=(60, 6)).astype(float)
    return {
        "constant features": (np.ones((60, 8)), labels),
        "mostly dead features": (dead, labels),
        "a class per sample": (noise, np.arange(60)),
        "two samples": (noise[:2], labels[:2]),
        "one class": (noise, np.zeros(60)),
        "features that are the class": (np.eye(3)[labels], labels),
        "many features that are the class": (np.tile(np.eye(3)[labels], 3), labels),
        "tiny numbers": (noise * 1e-200, labels),
        "huge numbers": (noise * 1e200, labels),
        "few distinct rows": (few_values, labels),
        "equal columns": (np.tile(noise[:, :1], (1, 8)), labels),
        "more features than samples": (rng.normal(size=(40, 300)), np.arange(40) % 2),
        "no samples": (noise[:0], labels[:0]),
        "no features": (noise[:, :0], labels),
    }


@pytest.mark.parametrize("name", hostile())
@pytest.mark.parametrize("method", [AUTO, *automatic_finders()])
def test_where_nothing_can_be_found_there_is_one_context(name, method):
    features, labels = hostile()[name]
    found = find_contexts(features, labels, method=method)
    assert found.contexts.shape == (len(labels),)
    assert set(found.contexts) <= {0}
    assert found.sentence.endswith(".")


def test_tensors_of_any_kind_large_seeds_and_one_hot_labels_are_taken():
    features, labels, contexts = objects_in_contexts()
    half = torch.from_numpy(features).bfloat16().requires_grad_()
    found = infer_contexts(half, torch.from_numpy(np.eye(CLASSES)[labels]), seed=2**40)
    assert group_report(labels, found, contexts).ari > 0.95
    names = np.array(["ape", "bat", "cat", "dog"])[labels]
    np.testing.assert_array_equal(
        found, infer_contexts(half, names, num_contexts=CONTEXTS, seed=2**40)
    )
    two = infer_contexts(features, labels, num_contexts=2)
    for sparse in (torch.as_tensor(features).to_sparse(), csr_matrix(features)):
        np.testing.assert_array_equal(infer_contexts(sparse, labels, num_contexts=2), two)


def test_units_do_not_matter_and_the_same_seed_finds_the_same():
    features, labels, _ = objects_in_contexts()
    found = infer_contexts(features, labels)
    np.testing.assert_array_equal(found, infer_contexts(features, labels))
    scaled = infer_contexts(
        features * np.geomspace(1e-150, 1e150, 40) + 7e-151, labels, num_contexts=CONTEXTS
    )
    assert normalized_mutual_info_score(found, scaled) > 0.99


def test_datasets_and_loaders_give_what_arrays_give():
    """With the number of contexts given: to search for it takes ten times as long and reads no
    other data.
    """
    features, labels, _ = (torch.from_numpy(part) for part in objects_in_contexts())
    expected = infer_contexts(features, labels, num_contexts=CONTEXTS)
    assert set(expected) == set(range(CONTEXTS))
    dataset = TensorDataset(features, labels)
    # What it keeps is not what it gives
    dataset.targets = torch.zeros_like(labels)
    dataset.target_transform = abs
    before = torch.get_rng_state()
    for data in (dataset, DataLoader(dataset, 100, shuffle=True)):
        np.testing.assert_array_equal(infer_contexts(data, num_contexts=CONTEXTS), expected)
    np.testing.assert_array_equal(
        infer_contexts(TensorDataset(features), labels, num_contexts=CONTEXTS), expected
    )
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("method", ["pooled", "within", "early"])
def test_a_sample_is_enough_and_the_rest_is_assigned_in_one_pass(method, monkeypatch):
    features, labels, contexts = objects_in_contexts(samples=3000, dominant=0.95)
    monkeypatch.setattr("pfdl.contexts.sample.MOST_SAMPLES", 1200)
    monkeypatch.setattr("pfdl.contexts.sampling.CLUSTERED", 400)
    monkeypatch.setattr("pfdl.contexts.sources.BLOCK", 700)
    found = find_contexts(features, labels, method=method)
    scores = group_report(labels, found.contexts, contexts)
    assert scores.minority_precision > 0.9, found.sentence
    assert scores.minority_recall > 0.9


@pytest.mark.parametrize(("strength", "most"), [(0.8, 600), (0.95, None)])  # rare groups need more
def test_colours_that_fill_the_image_are_found_exactly(strength, most):
    data = SpuCoMNIST(strength=strength, max_train=most)
    found = find_contexts(data.train)
    assert found.method == "pooled", found.sentence
    assert group_report(data.train.labels, found.contexts, data.train.contexts).ari == 1.0
    again = infer_contexts(data.train.images, data.train.labels, num_contexts=found.number)
    np.testing.assert_array_equal(found.contexts, again)


def test_images_are_described_by_what_the_user_gives():
    data = SpuCoMNIST(strength=0.9, max_train=300)
    seen = []

    def describe(images):
        seen.append(images.shape)
        return image_statistics(images, seed=3)

    found = infer_contexts(DataLoader(data.train, 128), describe=describe, num_contexts=5)
    assert seen[0] == (128, 3, 28, 28)
    assert max(shape[0] for shape in seen) == 128
    assert len(found) == len(data.train)


@pytest.mark.parametrize(
    ("arguments", "settings", "error", "message"),
    [
        ((np.zeros((4, 3)), np.zeros(3)), {}, ValueError, "there are 4 samples and 3 labels"),
        ((np.zeros(4), np.zeros(4)), {}, ValueError, "features have shape (4,)"),
        ((np.zeros((4, 3)), np.zeros((4, 3))), {}, ValueError, "labels have shape (4, 3)"),
        ((np.zeros((4, 3)),), {}, TypeError, "labels are missing"),
        ((np.full((40, 5), np.nan), np.arange(40) % 2), {}, ValueError, "row 0, column 0 is nan"),
        ((np.full((40, 5), "a"), np.arange(40) % 2), {}, TypeError, "give numbers"),
        (("folder", np.zeros(4)), {}, TypeError, "features are a str"),
        ((ChainDataset([]), np.zeros(4)), {}, TypeError, "the dataset is a stream"),
        ((np.eye(4), [0.0, 1.0, np.nan, 1.0]), {}, ValueError, "labels have NaN"),
        (
            (np.eye(4), np.zeros(4)),
            {"num_contexts": 8},
            ValueError,
            "contexts is 8, but there are only 4 samples",
        ),
        ((np.eye(4), np.zeros(4)), {"num_contexts": 2.0}, TypeError, "contexts is 2.0"),
        (
            (np.eye(4), np.zeros(4)),
            {"num_contexts": 2, "method": "early"},
            ValueError,
            "finds its own number",
        ),
        (
            (np.eye(4), np.zeros(4)),
            {"confirmation": float("nan")},
            ValueError,
            "confirmation is nan",
        ),
        (
            (np.eye(4), np.zeros(4)),
            {"confirmation": 1.5},
            ValueError,
            "confirmation is 1.5; give a number from 0 to 1",
        ),
        ((np.eye(4), np.zeros(4)), {"method": "guess"}, ValueError, "method is 'guess'"),
        ((np.eye(4), np.zeros(4)), {"seed": -1}, ValueError, "seed is -1"),
    ],
)
def test_what_cannot_be_used_is_refused(arguments, settings, error, message):
    with pytest.raises(error) as caught:
        infer_contexts(*arguments, **settings)
    assert message in str(caught.value)


def test_a_number_may_be_asked_for():
    features, labels, _ = objects_in_contexts()
    assert find_contexts(features, labels, num_contexts=2, confirmation=0.0).number == 2
    assert find_contexts(features, labels, num_contexts=1).sentence.endswith(
        "one context was asked for."
    )
    assert {trial.method for trial in find_contexts(features, labels, num_contexts=11).tried} <= {
        "pooled",
        "within",
    }


@pytest.mark.parametrize("number", [None, 2])
def test_halves_of_few_samples_need_not_agree(number):
    """Less than by chance, even: then they are found without checks, and with these rejected by a
    sentence.
    """
    for seed in range(6):
        features = np.random.default_rng(seed).normal(size=(30, 8))
        labels = np.arange(30) % 2
        found = [
            find_contexts(features, labels, num_contexts=number, confirmation=least)
            for least in (0.0, 0.5)
        ]
        assert (found[0].number > 1, found[1].number) == (True, 1)
        assert "halves of the features agree too little (" in found[1].sentence
