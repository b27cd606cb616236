"""Known environments: slopes that differ, and columns that do not carry over."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression

from pfdl.tabular import LeakScreen, ScreenedRegressor
from pfdl.tabular.environments import _Moments
from pfdl.tabular.moments import standardised
from pfdl.tabular.screening import CHANGES


def changing_table(
    seed, slopes=(1.5, 0.2, -0.8), n=400, shift=0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two causes with the same slopes everywhere; V is an effect of y whose strength is the
    environment's own.
    """
    rng = np.random.default_rng(seed)
    parts = []
    for number, slope in enumerate(slopes):
        S = rng.standard_normal((n, 2)) + shift * number * np.array([1.0, -1.0])
        y = S @ [1.0, -1.0] + 0.5 * rng.standard_normal(n)
        V = slope * y + 0.5 * rng.standard_normal(n)
        parts.append((np.column_stack([S, V]), y))
    X = np.vstack([part[0] for part in parts])
    y = np.concatenate([part[1] for part in parts])
    return X, y, np.repeat(["north", "south", "west"][: len(slopes)], n)


def test_errors_are_those_of_least_squares_on_the_other_environments():
    X, y, groups = changing_table(0)
    Z = standardised(X)
    label = standardised(y)[:, None]
    found = _Moments(Z, label, groups, np.ones(len(y))).errors(np.array([0, 2]))
    expected = []
    for name in ("north", "south", "west"):
        seen = groups != name
        model = LinearRegression().fit(Z[seen][:, [0, 2]], label[seen, 0])
        expected.append(np.mean((label[~seen, 0] - model.predict(Z[~seen][:, [0, 2]])) ** 2))
    assert np.allclose(found, expected, rtol=1e-6)


def test_slope_tests_are_f_tests_of_interactions():
    X, y, groups = changing_table(1, slopes=(0.3, 0.32, 0.28))
    Z = standardised(X)
    label = standardised(y)[:, None]
    p_values = _Moments(Z, label, groups, np.ones(len(y))).slope_tests(np.arange(3))
    dummies = np.column_stack([groups == name for name in ("north", "south", "west")]).astype(float)

    def squares(design):
        rest = label[:, 0] - design @ np.linalg.lstsq(design, label[:, 0], rcond=None)[0]
        return rest @ rest

    for j in range(3):
        small = np.column_stack([dummies, Z])
        large = np.column_stack([small, Z[:, [j]] * dummies[:, 1:]])
        freedom = len(Z) - large.shape[1]
        ratio = (squares(small) - squares(large)) / 2 / (squares(large) / freedom)
        assert p_values[j] == pytest.approx(stats.f.sf(ratio, 2, freedom), rel=1e-4)


def test_a_column_that_does_not_carry_over_goes_and_the_causes_stay():
    for seed in range(5):
        X, y, groups = changing_table(seed)
        model = ScreenedRegressor().fit(X, y, groups=groups)
        assert model.kept_.tolist() == [True, True, False]
        assert model.explain().loc["x2", "decision"] == CHANGES
        assert "every column is kept" not in model.verdict_.lower()
        assert "relating to the label differently in different environments: x2." in model.verdict_
        new_X, new_y, _ = changing_table(seed + 50, slopes=(-1.5,))
        assert model.score(new_X, new_y) > LinearRegression().fit(X, y).score(new_X, new_y)
        plain = ScreenedRegressor(screen=LeakScreen(keep=[2])).fit(X, y, groups=groups)
        assert plain.kept_.all()


def test_the_same_relation_everywhere_keeps_every_column():
    for seed in range(5):
        X, y, groups = changing_table(seed, slopes=(0.7, 0.7, 0.7))
        model = ScreenedRegressor().fit(X, y, groups=groups)
        assert model.kept_.all()
        assert "give no further reason to leave out a column" in model.verdict_


def test_classes_and_weights():
    X, y, groups = changing_table(0)
    for label, weight in (
        (np.where(y > 0, "high", "low"), np.ones(len(y))),
        (y, np.full(len(y), 2.0)),
    ):
        screen = LeakScreen().fit(X, label, groups=groups, sample_weight=weight)
        assert screen.get_support().tolist() == [True, True, False]


def test_too_few_environments_are_refused():
    X, y, _ = changing_table(0)
    with pytest.raises(ValueError, match="groups names 1 environments"):
        LeakScreen().fit(X, y, groups=["here"] * len(y))
    for groups in (["here", "there"], [None, np.nan] + ["here", "there"] * 599):
        with pytest.raises(ValueError, match=r"groups name .* environments for 1200 rows"):
            LeakScreen().fit(X, y, groups=groups)
