"""Clusters are sought by halves of the features; contexts are judged against a naive loop and on
data made for it.
"""

import numpy as np
import pytest

from pfdl.contexts import clustering, confirmation, early
from pfdl.contexts.clusters import WithinClusters, two_way
from pfdl.contexts.confirmation import WHOLE_GROUP, confirm
from tests.contexts.objects import in_contexts

RIDGES = 6


DEMANDS = {
    "pooled": clustering.OF_POOLED,
    "within": clustering.OF_WITHIN,
    "early": early.DEMANDS,
}


def judge(method, features, labels, contexts, seed=0):
    return confirm(method, 1.0, features, labels, contexts, demands=DEMANDS[method], seed=seed)


def made(seed=0, **changes):
    usual = {"samples": 1600, "classes": 8, "strength": 2.0, "dominant": 0.4, "of_class": 1.0}
    features, labels, contexts = in_contexts(seed, **{**usual, **changes})
    return features / features.std(axis=0), labels, contexts


@pytest.mark.parametrize("method", ["pooled", "early"])
def test_the_gain_is_an_average_over_groups(monkeypatch, method):
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 0, 1], [90, 6, 30, 60])
    contexts = np.repeat([0, 0, 1, 1], [90, 6, 30, 60])
    sides = (rng.random((2, RIDGES, len(labels))) < np.array([0.4, 0.8])[:, None, None]).astype(
        float
    )
    monkeypatch.setattr(confirmation, "_short_trainings", lambda *_: (sides[0], sides[1]))
    trial = judge(method, np.zeros((len(labels), 2)), labels, contexts)

    def averaged(right):
        if method == "early":  # all that a short training gets wrong is one group
            return 0.5 * (right[contexts == labels].mean() + right[contexts != labels].mean())
        total = weights = 0.0
        for label in (0, 1):
            for context in (0, 1):
                group = right[(labels == label) & (contexts == context)]
                weight = min(len(group) / WHOLE_GROUP, 1.0)
                total, weights = total + weight * group.mean(), weights + weight
        return total / weights

    gains = [averaged(after) - averaged(before) for before, after in zip(*sides, strict=True)]
    best = int(np.argmax(gains[:-1]))
    assert trial.gain == pytest.approx(gains[best])
    assert trial.average == pytest.approx(averaged(sides[0][best]))
    assert trial.balanced_average == pytest.approx(averaged(sides[1][best]))


def test_the_standard_error_is_that_of_repeated_draws():
    rng = np.random.default_rng(0)
    unusual = np.arange(400) >= 300
    share = np.where(unusual, 0.5 / 100, 0.5 / 300)
    change = rng.normal(np.where(unusual, 0.4, -0.1), np.where(unusual, 0.9, 0.3), size=(3000, 400))
    expected = (change @ share).std()
    found = np.mean([confirmation._standard_error(one, share, unusual) for one in change[:200]])
    assert found == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("of_class", "accepted", "said"),
    [
        (0.3, True, "drawing all groups equally often helps (averaged over groups, "),
        (0.0, False, "balancing them changes the held-out accuracy, averaged over groups"),
    ],
)
def test_many_contexts_are_believed_where_something_but_the_context_can_be_seen(
    seed, of_class, accepted, said
):
    """Although balancing costs in the usual contexts."""
    trial = judge("pooled", *made(seed, of_class=of_class))
    assert trial.accepted == accepted, trial.reason
    assert trial.gain == pytest.approx(trial.balanced_average - trial.average)
    assert said in trial.reason


@pytest.mark.parametrize("method", ["pooled", "early"])
@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_wrong_labels_are_no_context_even_if_it_is_known_where_they_are(method, noise):
    features, true, _ = made(samples=2400, classes=4, strength=0.0)
    rng = np.random.default_rng(1)
    labels = np.where(rng.random(len(true)) < noise, rng.integers(4, size=len(true)), true)
    assert not judge(method, features, labels, true).accepted


@pytest.mark.parametrize("method", ["pooled", "early"])
def test_shuffled_contexts_are_rejected(method):
    features, labels, contexts = made()
    assert not judge(
        method, features, labels, np.random.default_rng(0).permutation(contexts % 2)
    ).accepted


@pytest.mark.parametrize("seed", range(3))
def test_kinds_of_single_classes_are_no_contexts(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=2000)
    kinds = rng.choice(3, size=2000, p=[0.8, 0.15, 0.05])
    features = rng.normal(size=(2000, 40)) + rng.normal(size=(4, 3, 40))[labels, kinds]
    # The rarest as one
    trial = judge("pooled", features, labels, np.where(kinds == 2, 0, 1 + 2 * labels + kinds))
    assert "of the samples are in contexts that most classes share" in trial.reason


def test_kinds_of_two_classes_that_look_alike_are_no_contexts():
    """Every context has two of four classes, so that no class is ever seen in most contexts."""
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=2000)
    rare = rng.random(2000) < 0.2
    contexts = (labels + rare) % 4
    features = (
        rng.normal(size=(2000, 40))
        + rng.normal(size=(4, 40))[labels]
        + 2 * rng.normal(size=(4, 40))[contexts]
    )
    trial = judge("within", features, labels, contexts)
    assert "only 0 % of the samples are in contexts that most classes share" in trial.reason


@pytest.mark.parametrize(
    ("agreement", "expected"),
    [
        (
            {2: 0.9, 3: 0.6, 4: 0.7, 5: 0.6, 6: 0.5, 7: 0.6, 8: 0.4},
            [2, 7, 4],
        ),  # peaks above the best, largest first
        ({2: 0.9, 4: 0.4}, [2]),  # a peak too low
        ({2: 0.6, 3: 0.96, 7: 0.9}, [3]),  # clearly apart: nothing finer is wanted
        ({2: 0.3, 3: 0.4}, [3]),  # none is stable enough: the best is returned, to be rejected
        ({11: 0.6, 12: 0.7}, [12]),
        ({3: 0.8, 11: 0.6, 12: 0.7}, [3]),  # of the last number it is unknown whether it is a peak
    ],
)
def test_the_best_number_and_larger_peaks_of_agreement_are_returned(
    monkeypatch, agreement, expected
):
    features, labels, _ = in_contexts(samples=400)
    monkeypatch.setattr(
        clustering, "adjusted_rand_score", lambda one, _: agreement.get(len(np.unique(one)), 0.0)
    )
    found = list(clustering.find_within(features, labels, least_agreement=0.5, seed=0))
    assert [len(np.unique(one.assign(features, labels))) for one in found] == expected
    assert [one.stability for one in found] == pytest.approx(
        [agreement[number] for number in expected]
    )


@pytest.mark.parametrize(
    ("agreement", "clearness", "expected"),
    [
        ({2: 0.9, 3: 0.9, 4: 0.9}, {2: 0.5, 3: 0.515, 4: 0.515}, 3),
        ({2: 0.9, 3: 0.9, 4: 0.9}, {2: 0.507, 3: 0.515, 4: 0.51}, 2),  # as clear, and smaller
        ({2: 0.885, 3: 0.9, 4: 0.87}, {2: 0.6, 3: 0.5, 4: 0.7}, 2),  # 4 agrees less than equally
    ],
)
def test_of_numbers_that_agree_equally_the_smallest_of_the_clearest_is_best(
    monkeypatch, agreement, clearness, expected
):
    features, labels, _ = in_contexts(samples=200)
    monkeypatch.setattr(
        clustering, "adjusted_rand_score", lambda one, _: agreement.get(len(np.unique(one)), 0.0)
    )
    monkeypatch.setattr(
        WithinClusters, "separation", lambda self, found: clearness[len(found.of_context)]
    )
    found = next(clustering.find_within(features, labels, least_agreement=0.5, seed=0))
    assert len(np.unique(found.assign(features, labels))) == expected


def test_the_last_number_is_not_taken_as_a_larger_peak_but_may_be_the_best():
    """Beyond it agreement may rise further; so it is no peak, whatever is below it."""
    features, labels, _ = in_contexts(samples=200)
    search = clustering.NumberSearch(
        WithinClusters, features, labels, number=None, least=0.5, seed=0
    )
    search.stability = {11: 0.6, 12: 0.9}
    assert not search._is_peak(12)
    search.stability = {10: 0.5, 11: 0.9, 12: 0.6}
    assert search._is_peak(11)


@pytest.mark.parametrize(("mended", "accepted"), [(0.1, False), (0.2, True)])
def test_a_gain_must_exceed_what_is_demanded_by_three_standard_errors(
    monkeypatch, mended, accepted
):
    """Balancing mends a share of the 100 samples in unusual groups: the gain is half of it, its
    error 0.05 √(share (1 − share)).
    """
    labels = np.repeat([0, 1, 0, 1], [200, 50, 50, 200])
    contexts = np.repeat([0, 0, 1, 1], [200, 50, 50, 200])
    unusual = labels != contexts
    before = np.tile((~unusual).astype(float), (RIDGES, 1))
    after = before.copy()
    after[:, np.flatnonzero(unusual)[: int(100 * mended) // 2]] = 1.0
    after[:, np.flatnonzero(unusual)[50 : 50 + int(100 * mended) // 2]] = 1.0
    monkeypatch.setattr(confirmation, "_short_trainings", lambda *_: (before, after))
    trial = judge("pooled", np.zeros((500, 2)), labels, contexts)
    assert trial.gain == pytest.approx(mended / 2)
    assert trial.gain_error == pytest.approx(0.05 * np.sqrt(mended * (1 - mended)))
    assert trial.accepted == accepted, trial.reason


@pytest.mark.parametrize(("wrong", "accepted"), [(10, False), (30, True)])
def test_a_short_training_must_be_misled_by_three_standard_errors(monkeypatch, wrong, accepted):
    """Of 100 samples in unusual groups so many are wrong, of the others one in ten."""
    labels = np.repeat([0, 1, 0, 1], [200, 50, 50, 200])
    contexts = np.repeat([0, 0, 1, 1], [200, 50, 50, 200])
    before = np.ones((RIDGES, 500))
    before[:, :20] = before[:, -20:] = 0.0
    before[:, 200 : 200 + wrong] = 0.0
    monkeypatch.setattr(confirmation, "_short_trainings", lambda *_: (before, np.ones_like(before)))
    trial = judge("pooled", np.zeros((500, 2)), labels, contexts)
    assert trial.accepted == accepted, trial.reason
    assert ("is not misled by them" in trial.reason) != accepted


def two_way_by_turns(z, y, group, number):
    """Alternate between least squares with dummy variables and the nearest centre, to the end."""
    while True:
        design = np.hstack([np.eye(int(y.max()) + 1)[y], np.eye(number)[group]])
        centres = np.linalg.lstsq(design, z, rcond=None)[0]
        of_class, of_group = centres[:-number], centres[-number:]
        rest = z - of_class[y]
        nearest = ((rest[:, None] - of_group) ** 2).sum(axis=2).argmin(axis=1)
        if (nearest == group).all():
            return group, float(((rest - of_group[group]) ** 2).sum())
        group = nearest


@pytest.mark.parametrize("seed", range(3))
def test_clusters_within_classes_turn_until_nothing_changes(seed):
    rng = np.random.default_rng(seed)
    y, context = rng.integers(3, size=(2, 600))
    z = rng.normal(size=(600, 5)) + 3 * rng.normal(size=(3, 5))[y]
    z += 3 * rng.normal(size=(3, 5))[context]
    start = np.where(rng.random(600) < 0.4, context, rng.integers(3, size=600))
    expected, least = two_way_by_turns(z, y, start, 3)
    missed, _, _, found = two_way(z.astype(np.float32), y, start, 3)
    assert missed == pytest.approx(least, rel=0.01)
    assert (found == expected).mean() > 0.99
