"""Tables made to fool the screening: what it must get right, and what it is documented to get
wrong.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from pfdl.tabular import LeakScreen, ScreenedRegressor
from pfdl.tabular.screening import FOLLOWS_LABEL, Outcome
from tests.tabular.reference import select

WEAK, STRONG = 5 * np.log(1.3), 5 * np.log(1.7)
BETA = np.array([1 / 3, -2 / 3, 1, -1 / 3, 2 / 3])


def linear_table(beta, noise=0.3, nonlinear=False, shared_s=0.0, shared_v=0.0, heavy=False):
    """A sampler of S (causes of y with these coefficients), V (five columns that are not) and y."""
    beta = np.asarray(beta, dtype=float)

    def draw(rng, n):
        s = rng.standard_normal((n, len(beta))) + shared_s * rng.standard_normal((n, 1))
        v = rng.standard_normal((n, 5)) + shared_v * rng.standard_normal((n, 1))
        error = rng.standard_t(2, n) if heavy else rng.standard_normal(n)
        y = s @ beta + (s[:, 0] * s[:, 1] * s[:, 2] if nonlinear else 0.0) + noise * error
        return s, v / np.sqrt(1 + shared_v**2), y

    return draw


def assert_is_ordinary_least_squares(model, X, y):
    plain = LinearRegression().fit(X, y)
    assert np.allclose(model.coef_, plain.coef_, atol=1e-10)
    assert model.intercept_ == pytest.approx(plain.intercept_)
    assert np.allclose(model.predict(X), plain.predict(X))


FOUND = {
    "two independent causes": linear_table([1.0, 1.0]),
    "three causes": linear_table([1.0, -1.0, 1.0]),
    "purely linear y": linear_table(BETA),
    "y with a product": linear_table(BETA, nonlinear=True),
    "heavy-tailed noise": linear_table(BETA, heavy=True),
    "correlated V": linear_table(BETA, nonlinear=True, shared_v=1.0),
    "positively correlated causes": linear_table([1.0, 0.5, 1.0, 0.5, 0.3], shared_s=0.7),
}


@pytest.mark.parametrize("rate", [WEAK, STRONG])
@pytest.mark.parametrize(
    ("name", "drop"),
    # A column that goes with others that the label does not tell of is not strong
    [*product(FOUND, ["sure"]), *product(sorted(set(FOUND) - {"correlated V"}), ["strong"])],
)
def test_selection_is_found_and_no_cause_is_dropped(name, drop, rate):
    for seed in range(3):
        X, y = select(FOUND[name], 2000, rate, seed)
        num_causes = X.shape[1] - 5
        model = ScreenedRegressor(screen=LeakScreen(drop=drop)).fit(X, y)
        assert np.flatnonzero(model.screen_.screening_.decision == FOLLOWS_LABEL).tolist() == [
            num_causes
        ]
        assert model.kept_[:num_causes].all()
        assert model.coef_[num_causes] == 0.0


@pytest.mark.parametrize("name", FOUND)
def test_without_selection_the_result_is_ordinary_least_squares(name):
    for seed in range(3):
        X, y = select(FOUND[name], 2000, 0.0, seed)
        model = ScreenedRegressor().fit(X, y)
        assert model.screen_.screening_.outcome is Outcome.NOTHING
        assert_is_ordinary_least_squares(model, X, y)


def test_documented_failure_one_cause_and_selection_cannot_be_told_apart():
    """S → y → V reads the same from both ends: nothing in the table says which of the two is the
    cause.
    """
    X, y = select(linear_table([1.0], noise=0.5), 2000, STRONG, 0)
    model = ScreenedRegressor(screen=LeakScreen(drop="sure")).fit(X, y)
    assert_is_ordinary_least_squares(model, X, y)


def test_one_dominant_cause_that_looks_like_a_follower_too_stays():
    """y is nearly a copy of its main cause; what has nothing left in common with the others, given
    y, is V alone.
    """
    X, y = select(linear_table([1.0, 0.3]), 2000, STRONG, 0)
    model = ScreenedRegressor().fit(X, y)
    assert np.flatnonzero(model.screen_.screening_.decision == FOLLOWS_LABEL).tolist() == [2]


def test_documented_failure_where_the_others_tell_nothing_of_y_nothing_can_be_judged():
    """Where the causes explain nothing of y, they explain nothing of a column that follows it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 6))
    y = rng.standard_normal(2000)
    X[:, 5] = 0.9 * y + 0.3 * rng.standard_normal(2000)
    screen = LeakScreen().fit(X, y)
    assert screen.get_support().all()
    assert "Not to be judged, though the label tells much of it: x5." in screen.verdict_
    # A little is enough
    X, y = select(linear_table(BETA, noise=1.5), 2000, STRONG, 0)
    assert np.flatnonzero(~LeakScreen().fit(X, y).get_support()).tolist() == [5]


def test_documented_failure_an_effect_of_y_is_dropped_though_it_is_useful():
    rng = np.random.default_rng(0)
    S = rng.standard_normal((2000, 5))
    y = S @ BETA + 0.3 * rng.standard_normal(2000)
    effect = y + 0.3 * rng.standard_normal(2000)
    model = ScreenedRegressor().fit(np.column_stack([S, effect]), y)
    assert np.flatnonzero(model.screen_.screening_.decision == FOLLOWS_LABEL).tolist() == [5]


def test_random_unbiased_tables_rarely_lose_a_column():
    """Factor models whose causes push the same way, on which k/m < 0.4 alone drops a cause in half
    of the draws.
    """
    lost = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((2000, 2)) @ np.abs(
            rng.standard_normal((2, 8))
        ) + rng.standard_normal((2000, 8))
        signal = X[:, :5] @ (0.2 + np.abs(rng.standard_normal(5)))
        share = rng.choice([0.2, 0.5, 0.8, 0.95])
        y = signal + rng.standard_normal(2000) * signal.std() * np.sqrt((1 - share) / share)
        lost += not ScreenedRegressor().fit(X, y).kept_.all()
    assert lost <= 2


def test_documented_failure_a_noisy_copy_shields_a_follower():
    X, y = select(FOUND["purely linear y"], 2000, STRONG, 0)
    rng = np.random.default_rng(1)
    shielded = np.column_stack([X, X[:, 5] + 0.05 * rng.standard_normal(2000)])
    assert ScreenedRegressor().fit(shielded, y).kept_.all()


def test_constant_columns_get_no_weight():
    X, y = select(FOUND["purely linear y"], 2000, STRONG, 0)
    model = ScreenedRegressor().fit(np.column_stack([np.full(2000, 1e6), X]), y)
    assert model.coef_[0] == 0.0
    assert model.explain().loc["x0", "decision"] == "constant"
    assert np.allclose(model.coef_[1:], ScreenedRegressor().fit(X, y).coef_)
    only_constant = ScreenedRegressor().fit(np.ones((50, 3)), y[:50])
    assert np.allclose(only_constant.predict(np.ones((2, 3))), y[:50].mean())


@pytest.mark.parametrize("rate", [0.0, STRONG])
def test_one_hot_columns(rate):
    def draw(rng, n):
        group = np.eye(4)[rng.integers(4, size=n)]
        s, v, y = linear_table(BETA)(rng, n)
        return np.hstack([group, s]), v, y + group @ [0.0, 0.5, 1.0, -0.5]

    X, y = select(draw, 3000, rate, 0)
    model = ScreenedRegressor().fit(X, y)
    assert model.kept_[:9].all()
    followers = np.flatnonzero(model.screen_.screening_.decision == FOLLOWS_LABEL).tolist()
    assert followers == ([9] if rate else [])
    groups = np.eye(4) @ np.vstack([model.coef_[:4]]).T
    assert np.allclose((groups - groups[0]).ravel(), [0.0, 0.5, 1.0, -0.5], atol=0.15)
