"""Against loops over features and samples with scikit-learn, in float64."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from pfdl.contexts import ridge as left_out
from pfdl.contexts.ridge import predict_left_out


def mixed(n, p, seed=0, factors=3):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, factors)) @ generator.normal(
        size=(factors, p)
    ) + generator.normal(size=(n, p))


def naive(z, groups, ridge):
    """Leave out one sample, fit one feature on the others with a mean per group, predict: n·p ridge
    regressions.
    """
    n, p = z.shape
    predicted = np.empty_like(z)
    members = np.eye(groups.max() + 1)[groups]
    for i in range(n):
        rest = np.arange(n) != i
        # The mean of a group is not to be shrunk: take it off by least squares, then ridge on what
        # is left.
        means = LinearRegression(fit_intercept=False).fit(members[rest], z[rest])
        left = z - means.predict(members)
        for j in range(p):
            others = np.delete(left, j, axis=1)
            model = Ridge(alpha=ridge * n, fit_intercept=False).fit(others[rest], left[rest, j])
            predicted[i, j] = z[i, j] - (left[i, j] - others[i] @ model.coef_)
    return predicted


@pytest.mark.parametrize("ridge", left_out.RIDGES[::2])
@pytest.mark.parametrize(("n", "p"), [(30, 6), (9, 14)])  # more samples than features, and fewer
@pytest.mark.parametrize("num_groups", [1, 3])
def test_equals_the_loop(n, p, num_groups, ridge, monkeypatch):
    monkeypatch.setattr(left_out, "RIDGES", (ridge,))
    groups = np.arange(n) % num_groups
    features = mixed(n, p) * np.linspace(0.1, 30, p) + groups[:, None] * 5 + 7
    found = predict_left_out(features, groups)
    centred = features - np.stack([features[groups == group].mean(axis=0) for group in groups])
    z = centred / centred.std(axis=0)
    missed = z - naive(z, groups, ridge)
    of_mean = [z[i] - z[(groups == groups[i]) & (np.arange(n) != i)].mean(axis=0) for i in range(n)]
    r2 = 1 - np.sum(missed**2, axis=0) / np.sum(np.square(of_mean), axis=0)
    np.testing.assert_allclose(found.r2, r2, rtol=1e-7, atol=1e-9)
    for j in range(p):
        others = np.delete(z, j, axis=1)
        model = Ridge(alpha=ridge * n, fit_intercept=False).fit(others, z[:, j])
        np.testing.assert_allclose(
            centred @ found.coefficients[:, j], model.predict(others), atol=1e-9
        )


def test_noise_is_not_predictable_and_copies_are():
    generator = np.random.default_rng(3)
    noise = generator.normal(size=(400, 30))
    assert np.abs(predict_left_out(noise).r2).max() < 0.1
    copies = np.column_stack([noise[:, :5], noise[:, :5] * [2, -1, 3, 0.5, 1]])
    assert predict_left_out(copies).r2.min() > 0.999


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_whether_a_feature_is_constant_does_not_depend_on_its_unit(unit):
    features = mixed(20, 5)
    features[:, 2] = 1.0 + 1e-12 * features[:, 2]  # rounding
    found = predict_left_out(unit * features)
    assert np.isnan(found.r2).tolist() == [False, False, True, False, False]
    np.testing.assert_allclose(found.r2, predict_left_out(features).r2, rtol=1e-6)


def test_constant_features_and_lone_samples_are_set_aside():
    features = mixed(20, 5)
    features[:, 2] = 1e6
    groups = np.array([0] * 10 + [1] * 9 + [2])
    found = predict_left_out(features, groups)
    assert np.isnan(found.r2).tolist() == [False, False, True, False, False]
    assert found.coefficients.shape == (5, 4)
    assert not found.coefficients[2].any()
    alone = predict_left_out(features[:19], groups[:19])
    np.testing.assert_allclose(found.r2, alone.r2, rtol=0.2, atol=0.05)
