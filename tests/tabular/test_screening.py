"""The screening against one regression after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings, strategies as st
from scipy import stats

from pfdl.data import make_mmads
from pfdl.tabular.marks import Marks, measure
from pfdl.tabular.moments import Moments, adds_to_label, independent_columns
from pfdl.tabular.screening import CONSTANT, FOLLOWS_LABEL, KEPT, Outcome
from tests.tabular.reference import label_of, marks, moments_of, residual_variance, screen


def correlated_table(seed: int, n: int = 80, p: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) @ rng.standard_normal((p, p)) * 3 + 5
    return X, X @ rng.standard_normal(p) + rng.standard_normal(n)


def measure_given(moments: Moments, columns: list[int]) -> Marks:
    """The marks of the other columns, in their order."""
    for column in sorted(columns, reverse=True):
        moments = moments.given_column(column)
    return measure(moments)


def others_than(columns: list[int]) -> list[int]:
    return sorted(set(range(5)) - set(columns))


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.lists(st.integers(0, 4), unique=True, max_size=3))
@example(seed=565, dropped=[0, 2, 3])  # there is nothing to explain of the columns left
def test_m_k_and_share_equal_explicit_regressions(seed, dropped):
    X, y = correlated_table(seed)
    # Beside columns that are nearly one, the ridge of 1e-10 on each variance counts for more
    assume(np.linalg.cond(np.corrcoef(X.T)) < 1e6)
    label = label_of(y)
    measured = measure_given(moments_of(X, label), dropped)
    for place, j in enumerate(others_than(dropped)):
        m, k, share = marks(X, label, j, dropped)
        assert measured.m[place] == pytest.approx(m, abs=1e-6)
        assert measured.k[place] == pytest.approx(k, abs=1e-6)
        assert measured.share[place] == pytest.approx(share, abs=1e-5)


def test_relevance_is_the_t_test_of_ordinary_least_squares():
    """With y itself as the label, 'column and label tell each other nothing' is the test of a
    coefficient.
    """
    X, y = correlated_table(1)
    standardised = (y - y.mean()) / y.std()
    measured = measure(moments_of(X, standardised[:, None]))
    design = np.column_stack([X, np.ones(len(X))])
    beta, *_ = np.linalg.lstsq(design, y, rcond=None)
    rest = y - design @ beta
    freedom = len(X) - design.shape[1]
    error = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * (rest @ rest) / freedom)
    assert np.allclose(
        measured.relevance, 2 * stats.t.sf(np.abs(beta / error), freedom)[:5], rtol=1e-6
    )


def test_correlation_test_is_the_f_test_of_a_regression():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4))  # the last column is one that the others do not explain
    X[:, :3] += rng.standard_normal((80, 1))
    measured = measure(moments_of(X, label_of(rng.integers(2, size=80), number=False)))
    for j in range(4):
        n = len(X)
        inputs = 3
        r2 = 1 - residual_variance(X[:, j], np.delete(X, j, axis=1)) * (n - inputs - 1) / (
            n * X[:, j].var()
        )
        p_value = stats.f.sf(r2 / inputs / ((1 - r2) / (n - inputs - 1)), inputs, n - inputs - 1)
        assert measured.m_p[j] == pytest.approx(p_value, rel=1e-6)
    assert measured.are_certain(measured.m_p).tolist() == [True, True, True, False]


@pytest.mark.parametrize("setting", ["independent", "s_to_v", "v_to_s"])
@pytest.mark.parametrize(
    ("n", "p", "r"),
    [(1000, 10, 1.7), (2000, 20, -1.7), (2000, 20, 1.5), (300, 10, 1.7), (2000, 40, 2.0)],
)
def test_finds_exactly_the_biased_columns_of_mmads(setting, n, p, r):
    for seed in range(3):
        data = make_mmads(n, p, r, setting, seed=seed)
        found = screen(data.X, data.y, drop="sure")
        assert np.flatnonzero(found.decision == FOLLOWS_LABEL).tolist() == data.biased.tolist()
        assert found.kept[data.stable].all()
        assert (found.survival[data.biased] >= 0.9).all()
        assert found.explained > found.explained_without > 0.4 * found.explained


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "p", "r"), [(1000, 10, 1.7), (2000, 20, -1.7), (300, 10, 1.7)])
def test_by_default_columns_that_selection_tied_to_the_label_go_alone(n, p, r, seed):
    data = make_mmads(n, p, r, seed=seed)
    found = screen(data.X, data.y)
    assert np.flatnonzero(~found.kept).tolist() == data.biased.tolist()
    assert np.isnan(found.survival).all()


@pytest.mark.parametrize("dropped", [[], [1], [0, 3]])
def test_collision_is_the_f_test_among_what_label_and_dropped_columns_leave(dropped):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((300, 5))
    label = label_of(X[:, 0] + X[:, 1] + 0.3 * rng.standard_normal(300))
    measured = measure_given(moments_of(X, label), dropped)
    for place, j in enumerate(others_than(dropped)):
        known = np.hstack([X[:, dropped], label])
        others = np.hstack([np.delete(X, j, axis=1), label])
        added = others.shape[1] - known.shape[1]
        freedom = len(X) - 1 - others.shape[1]
        smaller = residual_variance(X[:, j], known) * (len(X) - 1 - known.shape[1])
        larger = residual_variance(X[:, j], others) * freedom
        p_value = stats.f.sf((smaller - larger) / added / (larger / freedom), added, freedom)
        assert measured.k_p[place] == pytest.approx(p_value, rel=1e-4, abs=1e-12)
    if not dropped:  # the two causes do, and only given the label
        assert measured.are_certain(measured.k_p).tolist() == [True, True, False, False, False]
        assert not measured.are_certain(measured.m_p).any()


def test_isolated_columns_tell_nothing_and_go_only_after_selection_was_found():
    noise_kept = 0
    for seed in range(10):
        data = make_mmads(1000, 10, 1.7, seed=seed)
        noise_kept += screen(data.X, data.y, drop="sure").kept[data.unstable].sum()
    assert noise_kept <= 3  # of forty, at a level of 1 %
    unbiased = make_mmads(2000, 10, 1 + 1e-9, seed=0)
    found = screen(unbiased.X, unbiased.y, drop="sure")
    assert found.kept.all()
    assert found.outcome is Outcome.NOTHING


def test_too_few_rows_or_columns_keep_everything():
    X, y = correlated_table(0, n=25)
    for table, outcome in ((X, Outcome.TOO_SMALL), (X[:, :1], Outcome.NO_OTHERS)):
        found = screen(table, y)
        assert found.kept.all()
        assert found.outcome is outcome
        assert np.isnan(found.m).all()


def test_constant_columns_copies_and_sums_are_judged_with_what_they_are_made_of():
    data = make_mmads(1000, 10, 1.7, seed=0)
    follower = data.X[:, data.biased[0]]
    extra = np.column_stack([np.full(1000, 3.0), data.X[:, 0] + data.X[:, 1], 2 * follower + 1])
    found = screen(np.hstack([extra, data.X]), data.y)
    assert found.decision[:3].tolist() == [CONSTANT, KEPT, FOLLOWS_LABEL]
    assert found.decision[3 + data.biased[0]] == FOLLOWS_LABEL
    assert np.isnan(found.m[0])
    assert found.kept[3 + data.stable].all()


def test_independent_columns_write_the_others_as_combinations():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 3))
    table = np.column_stack([X, X[:, 0] - 2 * X[:, 1], np.ones(50)])
    independent, combination = independent_columns(
        moments_of(table, np.empty((50, 0))), np.zeros(5, dtype=bool)
    )
    assert len(independent) == 3
    assert 4 not in independent
    scaled = (table - table.mean(axis=0)) / np.where(
        table.std(axis=0) > 1e-12, table.std(axis=0), 1
    )
    assert np.allclose(scaled[:, independent] @ combination, scaled, atol=1e-8)


def test_moments_do_not_depend_on_the_chunks(monkeypatch):
    X, y = correlated_table(0, n=300)
    label = label_of(y)
    whole = moments_of(X, label).joint
    monkeypatch.setattr("pfdl.tabular.moments._ROWS_AT_A_TIME", 7)
    assert np.allclose(moments_of(X, label).joint, whole)
    assert np.allclose(whole[:5, :5], np.corrcoef(X.T))


def test_label_functions_are_uncorrelated_and_span_what_they_should():
    rng = np.random.default_rng(0)
    y = rng.standard_t(2, size=400)
    functions = label_of(y)
    assert np.allclose(functions.T @ functions / 400, np.eye(4), atol=1e-8)
    hinge = np.maximum(y - np.median(y), 0)
    assert residual_variance(hinge, functions) < 1e-10
    assert label_of(np.repeat([0.0, 1.0], 10)).shape == (20, 1)
    of_classes = label_of(np.arange(30) % 3, number=False)
    assert np.allclose(of_classes.T @ of_classes / 30, np.eye(2), atol=1e-8)


def test_others_add_to_the_label_as_an_f_test_says():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 4))
    y = X[:, 0] + rng.standard_normal(100)
    moments = moments_of(X, label_of(y))
    assert not adds_to_label(moments, np.array([0]))
    assert adds_to_label(moments, np.array([1, 2]))
    assert not adds_to_label(moments, np.arange(4))
