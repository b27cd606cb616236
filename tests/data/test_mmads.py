"""The exact sampler against plain rejection, and the facts a data set states about itself."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest
from scipy import stats

from pfdl.data import MMADS, make_mmads


def plain_rejection(
    n: int, p: int, r: float, setting: str, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The paper's text, line by line: draw, then keep with probability Π |r| ** (−5 D)."""
    rng = np.random.default_rng(seed)
    half = p // 2
    beta = np.resize([1 / 3, -2 / 3, 1, -1 / 3, 2 / 3, -1], half)
    rows, labels = [], []
    while sum(map(len, labels)) < n:
        size = 20_000
        z = rng.standard_normal((size, p))
        v = rng.standard_normal((size, half))
        s = np.stack([0.8 * z[:, i] + 0.2 * z[:, i + 1] for i in range(half)], axis=1)
        next_column = (np.arange(half) + 1) % half
        if setting == "s_to_v":
            v = 0.8 * s + 0.2 * s[:, next_column] + rng.standard_normal((size, half))
        if setting == "v_to_s":
            s = 0.2 * v + 0.8 * v[:, next_column] + rng.standard_normal((size, half))
        y = s @ beta + s[:, 0] * s[:, 1] * s[:, 2] + 0.3 * rng.standard_normal(size)
        probability = np.ones(size)
        for i in range(p // 10):
            probability *= abs(r) ** (-5 * np.abs(y - np.sign(r) * v[:, i]))
        kept = rng.random(size) < probability
        rows.append(np.hstack([s, v])[kept])
        labels.append(y[kept])
    return np.concatenate(rows)[:n], np.concatenate(labels)[:n]


@pytest.mark.parametrize(
    ("setting", "p", "r"),
    [
        ("independent", 10, 1.7),
        ("independent", 20, -1.3),
        ("s_to_v", 20, 1.7),
        ("s_to_v", 10, -1.5),
        ("v_to_s", 20, 1.3),  # neighbouring columns of V_b are correlated given the rest
        ("v_to_s", 10, -1.7),
    ],
)
def test_exact_sampler_agrees_with_plain_rejection(setting, p, r):
    n = 6000
    data = make_mmads(n, p, r, setting, seed=1)
    ours = np.column_stack([data.X, data.y])
    theirs = np.column_stack(plain_rejection(n, p, r, setting, 2))
    # Every marginal, every pairwise product and the product in y, each at a level that all of them
    # share.
    for j in range(p + 1):
        assert stats.ks_2samp(ours[:, j], theirs[:, j]).pvalue > 1e-4
    for a, b in zip(products(ours), products(theirs), strict=True):
        assert abs(a.mean() - b.mean()) < 4.5 * np.sqrt(a.var() / n + b.var() / n)
    # The distance the selection looks at.
    distances = [table[:, -1] - np.sign(r) * table[:, p // 2] for table in (ours, theirs)]
    assert stats.ks_2samp(*distances).pvalue > 1e-4


def products(table):
    """Return each column times each, and the product of three columns in y times y."""
    pairs = combinations_with_replacement(table.T, 2)
    return [*(one * other for one, other in pairs), table[:, :3].prod(axis=1) * table[:, -1]]


@pytest.fixture(scope="module")
def data():
    return make_mmads(50, 20, -2.0, "s_to_v", seed=0)


def test_the_coefficients_are_a_cycle_on_the_stable_columns(data):
    assert np.allclose(data.beta[:6], [1 / 3, -2 / 3, 1, -1 / 3, 2 / 3, -1])
    assert np.allclose(data.beta[6:10], data.beta[:4])
    assert not data.beta[10:].any()


def test_it_says_which_columns_are_stable_and_which_biased(data):
    assert data.stable.tolist() == list(range(10))
    assert data.unstable.tolist() == list(range(10, 20))
    assert data.biased.tolist() == [10, 11]
    assert data.r == -2.0
    assert data.setting == "s_to_v"


def test_the_frame_has_the_columns_by_name_and_the_outcome_last(data):
    assert isinstance(data, MMADS)
    assert data.X.shape == (50, 20)
    frame = data.frame()
    stable = [f"S{number}" for number in range(1, 11)]
    unstable = [f"V{number}" for number in range(1, 11)]
    assert frame.columns.tolist() == [*stable, *unstable, "y"]
    assert np.array_equal(frame["V3"], data.X[:, 12])
    assert np.array_equal(frame["y"], data.y)


def test_same_seed_same_data_and_generators_are_welcome():
    first, again = (
        make_mmads(30, 10, 1.7, seed=7),
        make_mmads(30, 10, 1.7, seed=np.random.default_rng(7)),
    )
    assert np.array_equal(first.X, again.X)
    assert np.array_equal(first.y, again.y)
    assert not np.array_equal(first.X, make_mmads(30, 10, 1.7, seed=8).X)


def test_the_strongest_bias_of_the_paper_is_within_reach():
    data = make_mmads(500, 40, 3.0, "v_to_s", seed=0)
    assert np.abs(data.y[:, None] - data.X[:, data.biased]).mean() < 0.3
    data = make_mmads(500, 40, -3.0, "s_to_v", seed=0)
    assert np.abs(data.y[:, None] + data.X[:, data.biased]).mean() < 0.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "at least 1 row, got 0"),
        ({"p": 11}, "even .* got 11"),
        ({"p": 8}, "at least 10, got 8"),
        ({"r": 1.0}, r"\|r\| > 1 .* got 1.0"),
        *(({"r": float(r)}, f"got {r}") for r in ("-0.5", "nan", "inf")),
        ({"setting": "S->V"}, "Unknown setting 'S->V': choose one of 'independent'"),
    ],
)
def test_errors_name_the_value_and_the_remedy(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_mmads(**({"n": 10, "p": 10, "r": 1.7} | arguments))
