from itertools import product

import numpy as np
import pandas as pd
import pytest

from pfdl.report.tables import Missing, Number
from pfdl_lab.pairing import PairedDifference, paired
from pfdl_lab.statistics import by_seed, difference_cell, mean_cell

CLEAR_GAIN, CLEAR_LOSS = PairedDifference(2.0, 0.1, 5), PairedDifference(-2.0, 0.1, 5)
NOTHING = PairedDifference(0.1, 0.5, 5)


def test_values_are_looked_up_as_a_search_of_all_lines_finds_them():
    rng = np.random.default_rng(0)
    lines = {"row": rng.choice(["a", "b"], 60), "n": rng.integers(3, size=60), "seed": np.arange(60)}
    table = pd.DataFrame({**lines, "value": np.where(rng.random(60) < 0.2, np.nan, rng.normal(size=60))})
    for row, n in product("abc", (0, 1.0, 7)):
        found = table[(table["row"] == row) & (table["n"] == n)].set_index("seed")["value"].dropna()
        assert by_seed(table, row=row, n=n).to_dict() == found.to_dict()
        assert by_seed(table[table["n"] == n], row=row).to_dict() == found.to_dict()
    assert by_seed(table, n=1, row="a").dtype == by_seed(table, row="none").dtype == float


def test_mean_with_standard_error_or_deviation():
    assert mean_cell([1.0, 3.0], 1) == Number(2.0, 1.0, 1)
    assert mean_cell([1.0, 3.0], 1, deviation=True) == Number(2.0, 1.0, 1)
    assert mean_cell([1.0, 2.0, 6.0], 2, deviation=True).error == (14 / 3) ** 0.5
    assert mean_cell([], 1) == Missing()


def test_differences_are_of_the_repetitions_that_both_have():
    first, second = pd.Series([5.0, 9.0], index=[0, 2]), pd.Series([1.0, 2.0, 3.0], index=[2, 1, 0])
    difference = paired(first, second)  # 5 − 3 and 9 − 1
    assert (difference.mean, difference.standard_error) == pytest.approx((5.0, 3.0))
    assert paired(first, pd.Series([1.0], index=[7])) is None
    assert difference_cell(None, 1) == Missing()
