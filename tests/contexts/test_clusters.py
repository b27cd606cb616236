"""Clusters and what is said of them, against plain loops."""

import numpy as np
import pytest

from pfdl.contexts.clusters import PRINCIPAL, PooledClusters, WithinClusters
from tests.contexts.objects import in_contexts


def blobs(width=6, seed=0):
    """Three clusters apart by many times their own width, in each of two classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=300)
    context = rng.integers(3, size=300)
    places = 8 * rng.normal(size=(3, width))
    return rng.normal(size=(300, width)) + places[context] + rng.normal(size=(2, width))[y], y


@pytest.mark.parametrize("kind", [PooledClusters, WithinClusters])
def test_a_sample_is_in_the_context_whose_centre_is_nearest(kind):
    z, y = blobs()
    found = kind(z, y).fit(3, seed=0, starts=2)
    for sample, label, context in zip(z @ found.projection, y, found.assign(z, y), strict=True):
        distances = np.linalg.norm(sample - found.of_class[label] - found.of_context, axis=1)
        assert context == distances.argmin()
    assert found.own.tolist() == found.assign(z, y).tolist()


@pytest.mark.parametrize("kind", [PooledClusters, WithinClusters])
@pytest.mark.parametrize("number", [2, 3])
def test_clusters_are_apart_by_how_much_nearer_the_own_centre_is_than_the_next(kind, number):
    z, y = blobs()
    clusters = kind(z, y)
    found = clusters.fit(number, seed=0, starts=2)
    nearer = []
    for sample, label in zip(z @ found.projection, y, strict=True):
        distances = np.linalg.norm(sample - found.of_class[label] - found.of_context, axis=1)
        own, other = np.sort(distances)[:2]
        nearer.append(1 - own / other)
    assert clusters.separation(found) == pytest.approx(np.mean(nearer), rel=1e-4)


def test_clusters_are_sought_along_the_directions_of_most_variance():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, PRINCIPAL + 20)) * np.linspace(3.0, 0.1, PRINCIPAL + 20)
    projection = PooledClusters(z, np.zeros(400, dtype=int)).fit(2, seed=0, starts=1).projection
    _, _, directions = np.linalg.svd(z - z.mean(axis=0), full_matrices=False)
    overlap = np.abs(directions[:PRINCIPAL] @ projection)
    np.testing.assert_allclose(overlap, np.eye(PRINCIPAL), atol=1e-6)


def test_features_that_say_nothing_within_classes_give_one_point():
    y = np.arange(20) % 2
    found = WithinClusters(np.eye(2)[y], y).fit(2, seed=0, starts=1)
    assert len(set(found.own)) == 1


def test_other_seeds_begin_elsewhere():
    features, labels, _ = in_contexts(samples=300)
    clusters = PooledClusters(features, labels)
    centres = [clusters.fit(5, seed, starts=1).of_context for seed in (0, 0, 1)]
    assert np.array_equal(centres[0], centres[1])
    assert not np.allclose(centres[0], centres[2])
