import numpy as np
import pytest

from pfdl.contexts.groups import GroupAccuracy
from pfdl.diagnosis import Gap, accuracy_under_shift

TRAINING = {("cow", "grass"): 90, ("cow", "sand"): 10}


def curve(usual, other):
    groups = [GroupAccuracy("cow", "grass", usual, 500), GroupAccuracy("cow", "sand", other, 500)]
    return accuracy_under_shift(groups, TRAINING)


@pytest.mark.parametrize(
    ("validation", "test", "words", "matters"),
    [
        (0.80, 0.24, "Test accuracy is 56.0 ± ", True),
        (0.80, 0.24, "The test images differ from those of training.", True),
        (0.80, 0.79, "No difference between validation and test accuracy is shown: ", False),
        (0.30, 0.60, " points above validation accuracy", False),
    ],
)
def test_the_gap_in_one_line(validation, test, words, matters):
    gap = Gap(validation, 500, test, 500)
    assert words in gap.sentence()
    assert gap.matters == matters


def test_its_error_is_that_of_two_independent_shares():
    gap = Gap(0.8, 400, 0.4, 900)
    shares = [(0.8 * 400 + 1) / 402, (0.4 * 900 + 1) / 902]
    variance = sum(
        share * (1 - share) / count for share, count in zip(shares, (402, 902), strict=True)
    )
    assert gap.standard_error == pytest.approx(np.sqrt(variance))


def test_a_forecast_is_made_where_validation_images_do_not_refute_it():
    gap = Gap(0.83, 500, 0.5, 1000, in_training_mixture=0.83)
    assert gap.forecast(curve(0.9, 0.1)) == curve(0.9, 0.1).sentence()
    unknown = Gap(0.2, 500, 0.5, 1000)
    assert unknown.forecast(curve(0.9, 0.1)) == curve(0.9, 0.1).sentence()
    words = Gap(0.8, 500, 0.24, 1000, in_training_mixture=0.8).forecast(curve(0.48, 0.08))
    assert "expect 44.0 ± 2.0 % right in the training mixture" in words
    assert words.startswith("The contexts explain only part of the gap: ")
    assert words.endswith("gave 80.0 %.")
    too_high = Gap(0.5, 500, 0.48, 1000, in_training_mixture=0.5).forecast(curve(0.9, 0.1))
    assert too_high.startswith("Do not rely on a forecast: ")
