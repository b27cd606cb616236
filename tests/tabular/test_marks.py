"""The marks of an effect, against one regression after the other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression

from pfdl.tabular.marks import column_scores, measure, normal_scores
from pfdl.tabular.moments import Moments, label_functions
from tests.tabular.reference import label_of, moments_of, residual_variance


@pytest.fixture(scope="module", params=[True, False], ids=["number", "class"])
def made(request):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 5)) @ rng.standard_normal((5, 5))
    y = X[:, 0] - X[:, 2] + rng.standard_normal(200)
    label = label_of(
        normal_scores(y) if request.param else np.digitize(y, [-1.0, 1.0]), number=request.param
    )
    Z = column_scores(X)
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    return Z, label, measure(moments_of(Z, label))


def test_shares_are_those_of_explicit_regressions(made):
    Z, label, marks = made
    for j in range(5):
        others = np.delete(Z, j, axis=1)
        alone = residual_variance(Z[:, j], others)
        given_label = residual_variance(Z[:, j], label)
        given_both = residual_variance(Z[:, j], np.hstack([others, label]))
        total = Z[:, j].var()
        assert marks.m[j] == pytest.approx(1 - alone / total)
        assert marks.k[j] == pytest.approx(1 - given_both / given_label)
        assert marks.label[j] == pytest.approx(1 - given_label / total)
        assert marks.share[j] == pytest.approx(
            np.clip(marks.label[j] / (1 - given_both / total), 0, 1), abs=0.02
        )


def test_p_values_are_those_of_f_tests(made):
    Z, label, marks = made
    n = len(Z)
    d = label.shape[1]

    def p_value(j, smaller, larger):
        freedom = n - 1 - larger.shape[1]
        added = larger.shape[1] - smaller.shape[1]
        full = residual_variance(Z[:, j], larger) * freedom
        less = residual_variance(Z[:, j], smaller) * (n - 1 - smaller.shape[1])
        return stats.f.sf((less - full) / added / (full / freedom), added, freedom)

    for j in range(5):
        others = np.delete(Z, j, axis=1)
        both = np.hstack([others, label])
        assert marks.m_p[j] == pytest.approx(p_value(j, Z[:, []], others), rel=1e-4)
        assert marks.k_p[j] == pytest.approx(p_value(j, label, both), rel=1e-4)
        assert marks.relevance[j] == pytest.approx(p_value(j, others, both), rel=1e-4)
    assert marks.k_error == pytest.approx(np.sqrt(2 * 4) / n)
    assert d in (2, 4)


def test_a_column_is_compared_with_what_the_others_predict_of_the_label(made):
    Z, label, marks = made
    for j in range(5):
        others = np.delete(Z, j, axis=1)
        followed = label @ (label.T @ Z[:, j])  # as the column follows the label
        predicted = LinearRegression().fit(others, followed).predict(others)
        assert marks.through[j] == pytest.approx(np.corrcoef(predicted, Z[:, j])[0, 1] ** 2)
        rest = [
            values - LinearRegression().fit(label, values).predict(label)
            for values in (predicted, Z[:, j])
        ]
        assert marks.beyond[j] == pytest.approx(np.corrcoef(*rest)[0, 1] ** 2, abs=1e-6)


def test_scores_do_not_change_with_a_monotone_function_of_the_column():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 1))
    assert np.allclose(column_scores(np.exp(x)), column_scores(x))
    two = (x > 0).astype(float)
    assert np.array_equal(column_scores(7 * two - 3), two)
    assert not column_scores(np.full((50, 1), np.nan)).any()


@pytest.mark.parametrize("number", [True, False], ids=["number", "class"])
def test_weights_count_like_rows_that_stand_there_more_often(number):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((200, 4))
    y = X[:, 0] + X[:, 1] + rng.standard_normal(200)
    if not number:
        y = np.digitize(y, [-1.0, 1.0])
    times = np.where(y > 0, 4, 1)  # so that the label's functions differ under the weights
    weight = times.astype(float)
    X_repeated = np.repeat(X, times, axis=0)
    label = label_functions(y, number, weight)
    weighted = Moments.of(X, label, weight)
    repeated = Moments.of(X_repeated, np.repeat(label, times, axis=0), np.ones(len(X_repeated)))
    assert np.allclose(weighted.joint[4:, 4:], np.eye(label.shape[1]), atol=1e-8)
    assert np.allclose(weighted.joint, repeated.joint)
    label = np.repeat(label, times, axis=0)
    marks = measure(repeated)
    for j in range(4):
        others = np.delete(X_repeated, j, axis=1)
        beside_both = residual_variance(X_repeated[:, j], np.hstack([others, label]))
        beside_label = residual_variance(X_repeated[:, j], label)
        assert marks.k[j] == pytest.approx(1 - beside_both / beside_label)
