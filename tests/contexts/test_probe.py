"""Short trainings in closed form, against scikit-learn and loops."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from pfdl.contexts import early
from pfdl.contexts.early import ShortTraining
from pfdl.contexts.probe import (
    FOLDS,
    RIDGES,
    LeftOut,
    RidgePath,
    equal_classes,
    equal_groups,
    held_out_predictions,
    margins_of,
    spread,
)
from pfdl.contexts.sampling import CLUSTERED, rows_to_cluster, stratified_rows


def made(samples=60, width=5, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=samples)
    z = rng.normal(size=(samples, width)) + rng.normal(size=(classes, width))[y]
    return z, y, rng.uniform(0.5, 2.0, size=samples)


def by_scikit_learn(z, y, weight, ridge, classes=3):
    """Fit a ridge to one column for each class, whose weights add up to one."""
    return Ridge(alpha=ridge).fit(z, np.eye(classes)[y], sample_weight=weight / weight.sum())


@pytest.mark.parametrize(("samples", "width"), [(60, 5), (12, 30)])  # either square is smaller
def test_scores_are_those_of_weighted_ridge_regressions(samples, width):
    z, y, weight = made(samples, width)
    other = np.random.default_rng(1).normal(size=(7, width))
    scores = RidgePath(z, y, weight, 3).scores(other)
    for ridge, found in zip(RIDGES, scores, strict=True):
        expected = by_scikit_learn(z, y, weight, ridge).predict(other)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("samples", "width"), [(60, 5), (12, 30)])  # either square is smaller
def test_margins_are_of_fits_to_all_other_samples(samples, width):
    z, y, weight = made(samples, width)
    for ridge in RIDGES[1::2]:
        scores = LeftOut(z).scores(np.eye(3)[y], weight, ridge)
        margins, rival = margins_of(scores, y)
        for number in range(samples):
            rest = np.arange(samples) != number
            share = weight[rest].sum() / weight.sum()  # the sample takes its weight with it
            model = by_scikit_learn(z[rest], y[rest], weight[rest], ridge / share)
            expected = model.predict(z[[number]])[0]
            np.testing.assert_allclose(scores[number], expected, rtol=1e-5, atol=1e-7)
            others = np.where(np.arange(3) == y[number], -np.inf, scores[number])
            assert rival[number] == others.argmax()
            assert margins[number] == pytest.approx(scores[number, y[number]] - others.max())


def test_predictions_are_of_fits_to_the_other_fold():
    z, y, weight = made()
    fold = np.arange(len(y)) % FOLDS
    predicted, fits = held_out_predictions(z, y, fold, weight, 3)
    for number in range(FOLDS):
        held = fold == number
        for place, ridge in enumerate(RIDGES):
            model = by_scikit_learn(z[~held], y[~held], weight[~held], ridge)
            expected = model.predict(z[held]).argmax(axis=1)
            assert predicted[place, held].tolist() == expected.tolist()
            np.testing.assert_allclose(
                fits[number].scores(z, [ridge])[0], model.predict(z), rtol=1e-6, atol=1e-8
            )


@pytest.mark.parametrize("folds", [2, 3])
def test_folds_share_every_group_as_evenly_as_can_be(folds):
    rng = np.random.default_rng(0)
    group = rng.choice(4, size=103, p=[0.6, 0.2, 0.15, 0.05])
    fold = spread(group, rng, folds)
    for number in range(4):
        counts = np.bincount(fold[group == number], minlength=folds)
        assert counts.max() - counts.min() <= 1
    assert not np.array_equal(fold, spread(group, rng, folds))  # drawn anew


def test_under_equal_weights_classes_and_their_contexts_count_the_same():
    rng = np.random.default_rng(0)
    y = rng.choice(3, size=200, p=[0.7, 0.2, 0.1])
    np.testing.assert_allclose(np.bincount(y, equal_classes(y, 3)), 1.0)
    context = np.where(y == 0, rng.integers(3, size=200), rng.integers(2, size=200))
    weight = equal_groups(y, context)
    np.testing.assert_allclose(np.bincount(y, weight), 1.0)
    for label, contexts in ((0, 3), (1, 2), (2, 2)):
        own = y == label
        np.testing.assert_allclose(np.bincount(context[own], weight[own]), 1 / contexts)


def test_a_short_training_errs_on_what_stands_in_an_unusual_context():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=1000)
    is_unusual = rng.random(1000) < 0.1
    z = 0.5 * rng.normal(size=(1000, 8))
    z[:, ::2] += 2.0 * np.where(is_unusual, 1 - y, y)[:, None]
    z[:, 1] += 0.5 * y
    training = ShortTraining.fit(z, y, np.random.default_rng(0))
    assert (training.predicted[is_unusual] != y[is_unusual]).mean() > 0.9
    assert (training.predicted[~is_unusual] == y[~is_unusual]).mean() > 0.9
    assert training.agreement > 0.5
    assert (training.predict(z, y) == training.predicted).mean() > 0.95


def test_noise_is_misjudged_by_halves_of_the_features_each_in_its_own_way():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(1000, 8))
    training = ShortTraining.fit(z, rng.integers(4, size=1000), rng)
    # Of either's errors, three in four samples each, both give one of four answers alike
    assert training.agreement < 0.25


def test_as_many_of_each_group_are_drawn_as_it_has():
    group = np.repeat([0, 1, 2], [500, 40, 300])
    rng = np.random.default_rng(0)
    rows = stratified_rows(group, 240, rng)
    assert np.bincount(group[rows]).tolist() == [100, 40, 100]
    assert rows.tolist() == sorted(set(rows))
    assert rows.tolist() != stratified_rows(group, 240, rng).tolist()
    assert stratified_rows(group, 840, rng).tolist() == list(range(840))


def test_half_of_what_is_clustered_is_suspected():
    y = np.arange(3 * CLUSTERED) % 2
    suspected = np.arange(0, 3 * CLUSTERED, 3)
    rows = rows_to_cluster(y, suspected, seed=0)
    assert len(set(rows)) == CLUSTERED
    # Of what else is drawn, one in five is suspected by chance
    assert len(np.intersect1d(rows, suspected)) == pytest.approx(CLUSTERED * 0.6, rel=0.05)
    assert (y[rows] == 0).mean() == pytest.approx(0.5, abs=0.02)
    assert rows_to_cluster(y[:CLUSTERED], suspected, seed=0).tolist() == list(range(CLUSTERED))


def test_few_that_are_suspected_are_all_clustered():
    rows = rows_to_cluster(np.zeros(2 * CLUSTERED, dtype=int), np.arange(100), seed=1)
    assert set(range(100)) <= set(rows)
    assert len(rows) == CLUSTERED


@pytest.mark.parametrize(
    ("agreement", "taken"),
    [
        ([0.9, 0.885, 0.87, 0.5, 0.4, 0.3], 1),  # of equally good ridges the largest
        ([0.1, 0.2, 0.5, 0.9, 0.7, 0.1], 3),
    ],
)
def test_the_ridge_is_taken_at_which_halves_of_the_features_agree_best(
    monkeypatch, agreement, taken
):
    z, y, _ = made()
    monkeypatch.setattr(early, "_same_errors", lambda *_: np.array(agreement))
    training = ShortTraining.fit(z, y, np.random.default_rng(0))
    assert training.ridge == RIDGES[taken]
    assert training.agreement == pytest.approx(agreement[taken])
    fold = spread(y, np.random.default_rng(0))
    predicted, _ = held_out_predictions(z, y, fold, equal_classes(y, 3), 3)
    assert training.predicted.tolist() == predicted[taken].tolist()


def test_errors_are_the_same_where_both_give_one_wrong_class():
    y = np.zeros(5, dtype=int)
    one = np.array([[0, 1, 1, 2, 0], [0, 0, 0, 0, 0]])
    other = np.array([[0, 1, 2, 0, 1], [0, 0, 0, 0, 0]])
    # Four samples that either gets wrong, and on one of them both alike; where none is wrong, 0
    assert early._same_errors(one, other, y).tolist() == [0.25, 0.0]
