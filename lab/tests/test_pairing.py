import numpy as np
import pytest
from scipy import stats

from pfdl_lab.colored_mnist.selection import evenest_within_one_standard_error
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


def test_the_most_even_wins_only_if_its_risk_is_low_enough():
    # The lowest mean risk is 0.5 with restarts at 0.49 and 0.51: standard error 0.01.
    best = [[0.44, 0.54], [0.46, 0.56]]
    near = [[0.499, 0.519], [0.499, 0.519]]  # mean 0.509
    far = [[0.511, 0.511], [0.511, 0.511]]  # perfectly even, but 0.011 above
    assert evenest_within_one_standard_error({"best": best, "near": near, "far": far}) == "near"
    assert evenest_within_one_standard_error({"best": best, "far": far}) == "best"


def test_unevenness_is_measured_on_the_mean_over_restarts():
    noisy = [[0.4, 0.6], [0.6, 0.4]]  # uneven in each restart, even on average
    tilted = [[0.45, 0.55], [0.45, 0.55]]
    assert evenest_within_one_standard_error({"tilted": tilted, "noisy": noisy}) == "noisy"


def test_with_one_restart_only_the_lowest_risk_will_do():
    assert evenest_within_one_standard_error({"even": [[0.51, 0.51]], "low": [[0.4, 0.6]]}) == "low"


def test_there_must_be_something_to_choose_from():
    with pytest.raises(ValueError, match="no candidates"):
        evenest_within_one_standard_error({})
