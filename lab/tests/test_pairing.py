import numpy as np
import pytest
from scipy import stats

from pfdl_lab.pairing import paired_difference


def test_the_paired_difference_is_that_of_the_t_test():
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=(2, 9))
    difference = paired_difference(first.tolist(), second.tolist())
    test = stats.ttest_rel(first, second)
    assert difference.mean / difference.standard_error == pytest.approx(test.statistic)
    assert difference.p_value == pytest.approx(test.pvalue)
    assert difference.pairs == 9


def test_a_single_pair_has_no_standard_error():
    difference = paired_difference([2.0], [1.5])
    assert difference.mean == 0.5
    assert np.isnan(difference.standard_error)
    assert np.isnan(difference.p_value)


def test_differences_that_are_all_the_same_leave_nothing_to_chance():
    assert paired_difference([2.0, 3.0], [1.0, 2.0]).p_value == 0.0
    assert paired_difference([2.0, 3.0], [2.0, 3.0]).p_value == 1.0


@pytest.mark.parametrize(("first", "second"), [([], []), ([1.0], [1.0, 2.0])])
def test_what_is_not_paired_is_refused(first, second):
    with pytest.raises(ValueError, match="measurements are no pairs"):
        paired_difference(first, second)
