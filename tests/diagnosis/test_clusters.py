import numpy as np

from pfdl.diagnosis.clusters import NO_CLUSTER, cluster_features, shrink


def correlation_of(blocks, inside, size):
    matrix = np.eye(size)
    for block in blocks:
        matrix[np.ix_(block, block)] = inside
    np.fill_diagonal(matrix, 1)
    return matrix


def test_blocks_are_found_the_largest_first_whatever_the_sign():
    blocks = [[0, 4], [1, 3, 5]]
    matrix = correlation_of(blocks, 0.9, 7)
    matrix[3] *= -1
    matrix[:, 3] *= -1
    clusters, order = cluster_features(matrix, np.ones(7, dtype=bool))
    assert clusters.tolist() == [1, 0, clusters[2], 0, 1, 0, clusters[6]]
    assert {clusters[2], clusters[6]} == {2, 3}
    assert set(order[:3]) == {1, 3, 5}
    assert set(order[3:5]) == {0, 4}


def test_constant_features_have_no_cluster_and_no_place():
    varies = np.array([True, False, True, True])
    clusters, order = cluster_features(correlation_of([[0, 2]], 0.8, 3), varies)
    assert clusters.tolist() == [0, NO_CLUSTER, 1, 0]
    assert sorted(order) == [0, 2, 3]


def test_a_single_feature_is_a_cluster():
    clusters, order = cluster_features(np.eye(1), np.array([False, True]))
    assert clusters.tolist() == [NO_CLUSTER, 0]
    assert order.tolist() == [1]


def test_shrinking_keeps_the_mean_of_each_block():
    matrix = np.random.default_rng(0).normal(size=(10, 10))
    small, starts = shrink(matrix, most=4)
    ends = [*starts[1:], 10]
    for a in range(4):
        for b in range(4):
            assert np.isclose(small[a, b], matrix[starts[a] : ends[a], starts[b] : ends[b]].mean())
    same, all_starts = shrink(matrix, most=300)
    assert same is matrix
    assert all_starts.tolist() == list(range(10))
