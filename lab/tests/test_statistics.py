from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pfdl_lab.pairing import paired
from pfdl_lab.report.blocks import Missing, Number, Table, TableLine
from pfdl_lab.statistics import NOTHING, by_seed, difference_cell, mean_cell


def test_values_are_looked_up_as_a_search_of_all_lines_finds_them():
    rng = np.random.default_rng(0)
    lines = {
        "row": rng.choice(["a", "b"], 60),
        "n": rng.integers(3, size=60),
        "seed": np.arange(60),
    }
    table = pd.DataFrame(
        {**lines, "value": np.where(rng.random(60) < 0.2, np.nan, rng.normal(size=60))}
    )
    for row, n in product("abc", (0, 1.0, 7)):
        found = table[(table["row"] == row) & (table["n"] == n)].set_index("seed")["value"].dropna()
        assert by_seed(table, "row", "n").get((row, n), NOTHING).to_dict() == found.to_dict()
        assert (
            by_seed(table[table["n"] == n], "row").get((row,), NOTHING).to_dict() == found.to_dict()
        )
    assert by_seed(table, "n", "row")[1, "a"].dtype == NOTHING.dtype == float


def test_the_paired_difference_is_that_of_the_t_test():
    first, second = np.random.default_rng(0).normal(size=(2, 9))
    difference = paired(pd.Series(first), pd.Series(second))
    test = stats.ttest_rel(first, second)
    assert difference.mean / difference.standard_error == pytest.approx(test.statistic)
    assert difference.p_value == pytest.approx(test.pvalue)
    assert difference.pairs == 9


def test_a_single_pair_has_no_standard_error_and_equal_differences_leave_nothing_to_chance():
    single = paired(pd.Series([2.0]), pd.Series([1.5]))
    assert single.mean == 0.5
    assert np.isnan([single.standard_error, single.p_value]).all()
    assert not single.is_beyond_chance()
    for below, p_value in ((1.0, 0.0), (0.0, 1.0)):
        assert paired(pd.Series([2.0, 3.0]), pd.Series([2.0, 3.0]) - below).p_value == p_value


def test_differences_are_of_the_repetitions_that_both_have():
    first, second = pd.Series([5.0, 9.0], index=[0, 2]), pd.Series([1.0, 2.0, 3.0], index=[2, 1, 0])
    difference = paired(first, second)  # 5 − 3 and 9 − 1
    assert (difference.mean, difference.standard_error) == pytest.approx((5.0, 3.0))
    assert paired(first, pd.Series([1.0], index=[7])) is None
    assert difference_cell(None, 1) == Missing()


def test_an_error_that_one_measurement_cannot_give_is_left_out():
    number = Number(1.0, float("nan"), signed=True)
    assert (str(number), number.printed_error) == ("+1.0", "")
    assert str(Number(-0.5, 0.25, digits=2)) == "−0.50 ± 0.25"
    assert mean_cell([1.0, 3.0], 1) == Number(2.0, 1.0, 1)
    assert mean_cell([], 1) == Missing()


def test_a_table_says_what_its_errors_are_where_it_has_some():
    row = TableLine("x", (Number(1.0, 0.1), Missing()))
    assert Table("c", "m", ["a", "b"], [row], "So it is.").notes == [
        "± standard error.",
        "So it is.",
    ]
    assert Table("c", "m", ["a"], [TableLine("x", (Number(1.0, float("nan")),))]).notes == []
