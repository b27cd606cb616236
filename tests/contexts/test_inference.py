"""Scenes are found from features and labels alone, and only where there are any."""

import numpy as np
import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score

from pfdl import context_weights, infer_contexts
from pfdl.contexts.inference import _two_way

CLASSES, SCENES = 4, 4


def objects_in_scenes(seed=0, samples=1200, strength=2.0, dominant=0.6):
    """Half of 40 features move with the scene, eight with the class; each class has a scene it mostly stands in."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=samples)
    scenes = np.where(rng.random(samples) < dominant, labels, rng.integers(SCENES, size=samples))
    features = rng.normal(size=(samples, 40))
    features[:, :20] += strength * rng.normal(size=(SCENES, 20))[scenes]
    features[:, 20:28] += 2.0 * rng.normal(size=(CLASSES, 8))[labels]
    return features, labels, scenes


@pytest.mark.parametrize("seed", range(3))
def test_scenes_are_found_although_classes_mostly_stand_in_one(seed):
    features, labels, scenes = objects_in_scenes(seed)
    found = infer_contexts(features, labels, contexts=SCENES)
    assert normalized_mutual_info_score(scenes, found) > 0.9
    # The class is no help to the eye: the groups say of it what the true scenes say, and no more.
    of_class = normalized_mutual_info_score(labels, found)
    assert of_class == pytest.approx(normalized_mutual_info_score(labels, scenes), abs=0.05)


def test_without_scenes_there_is_one_group():
    features, labels, _ = objects_in_scenes(strength=0.0)
    assert set(infer_contexts(features, labels)) == {0}
    assert len(set(infer_contexts(features, labels, confirmation=-1.0))) > 1  # unless nobody asks for confirmation


def test_the_same_seed_finds_the_same_and_units_do_not_matter():
    features, labels, _ = objects_in_scenes()
    found = infer_contexts(features, labels, contexts=SCENES)
    np.testing.assert_array_equal(found, infer_contexts(features, labels, contexts=SCENES))
    scaled = infer_contexts(features * np.geomspace(0.01, 100, 40) + 7, labels, contexts=SCENES)
    assert normalized_mutual_info_score(found, scaled) > 0.99


def test_features_that_never_vary_and_labels_of_any_kind_are_taken():
    features, labels, scenes = objects_in_scenes()
    features[:, 5] = 3.0
    names = np.array(["ape", "bat", "cat", "dog"])[labels]
    assert normalized_mutual_info_score(scenes, infer_contexts(features, names, contexts=SCENES)) > 0.9


def test_class_and_scene_are_told_apart_by_fitting_both():
    """By the class means alone the scene that a class mostly stands in would pass for the class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=600)
    scenes = np.where(rng.random(600) < 0.9, labels, 1 - labels)
    z = 4.0 * np.eye(2)[scenes] + rng.normal(size=(600, 2))
    missed, group = _two_way(z, labels, (z[:, 0] > z[:, 1]).astype(int), 2)
    assert normalized_mutual_info_score(scenes, group) > 0.9
    assert missed / 600 == pytest.approx(2.0, rel=0.1)  # what is left is the noise


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (np.zeros((4, 3)), np.zeros(3), "features have shape (4, 3) and labels (3,)"),
        (np.zeros(4), np.zeros(4), "give (n, p) and (n,)"),
        (np.zeros((4, 1)), np.zeros(4), "there are 1 features"),
        (np.full((4, 3), np.nan), np.zeros(4), "not finite"),
    ],
)
def test_what_cannot_be_used_is_refused(features, labels, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011, the message is compared below
        infer_contexts(features, labels)
    assert message in str(error.value)


def test_more_groups_than_samples_are_refused():
    with pytest.raises(ValueError, match="contexts is 8, but there are only 4 samples"):
        infer_contexts(np.eye(4), np.zeros(4), contexts=8)


def test_tensors_are_taken_and_a_single_sample_is_a_group():
    features, labels, _ = (torch.from_numpy(part) for part in objects_in_scenes(samples=200))
    found = infer_contexts(features.requires_grad_(), labels, contexts=2)
    np.testing.assert_array_equal(found, infer_contexts(features.detach().numpy(), labels.numpy(), contexts=2))
    np.testing.assert_array_equal(infer_contexts(features[:1], labels[:1]), [0])


def test_few_samples_with_many_features_are_taken():
    rng = np.random.default_rng(0)
    labels, scenes = np.arange(40) % 2, np.arange(40) // 2 % 2
    features = rng.normal(size=(40, 200)) + 3.0 * scenes[:, None]
    assert normalized_mutual_info_score(scenes, infer_contexts(features, labels)) > 0.9


def test_of_many_samples_some_are_enough_to_count_the_scenes(monkeypatch):
    features, labels, scenes = objects_in_scenes()
    monkeypatch.setattr("pfdl.contexts.inference.MOST_SAMPLES", 400)
    assert normalized_mutual_info_score(scenes, infer_contexts(features, labels)) > 0.9


@pytest.mark.parametrize("scenes", [2, 4])
def test_the_number_of_scenes_is_found(scenes):
    rng = np.random.default_rng(0)
    labels, there = rng.integers(3, size=900), rng.integers(scenes, size=900)
    features = rng.normal(size=(900, 30)) + 2.5 * rng.normal(size=(scenes, 30))[there]
    found = infer_contexts(features, labels)
    assert len(set(found)) == scenes
    assert normalized_mutual_info_score(found, there) > 0.95


def test_weights_make_contexts_equally_frequent_in_every_class():
    _, labels, scenes = objects_in_scenes()
    weights = context_weights(labels, scenes, smoothing=0.0)
    for label in range(CLASSES):
        mine = labels == label
        assert weights[mine].mean() == pytest.approx(1.0)
        shares = [weights[mine & (scenes == scene)].sum() / mine.sum() for scene in range(SCENES)]
        np.testing.assert_allclose(shares, 1 / SCENES)


def test_smoothing_bounds_the_weight_of_a_stray_sample():
    labels, contexts = np.zeros(1000, dtype=int), np.array([0] * 999 + [1])
    assert context_weights(labels, contexts, smoothing=0.0)[-1] == pytest.approx(500.0)
    smoothed = context_weights(labels, contexts)
    assert smoothed[-1] / smoothed[0] == pytest.approx((999 + 125) / (1 + 125))


def test_weights_of_unequal_columns_are_refused():
    with pytest.raises(ValueError, match=r"labels have shape \(2,\) and contexts \(3,\)"):
        context_weights([0, 1], [0, 1, 2])
