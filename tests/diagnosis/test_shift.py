import numpy as np
import pytest

from pfdl.contexts import GroupAccuracy
from pfdl.diagnosis import accuracy_under_shift

TRAINING = {("cow", "grass"): 95, ("cow", "sand"): 5, ("camel", "grass"): 10, ("camel", "sand"): 40}
TRUE = {
    ("cow", "grass"): 0.9,
    ("cow", "sand"): 0.3,
    ("camel", "grass"): 0.5,
    ("camel", "sand"): 0.8,
}


def groups_of(accuracy, samples=200):
    return [GroupAccuracy(*key, share, samples) for key, share in accuracy.items()]


def shifted_weights(exponent):
    """Return the weight of each group; classes keep theirs, their contexts are drawn anew."""
    weights = {}
    for label, share in (("cow", 100 / 150), ("camel", 50 / 150)):
        powers = {key: count**exponent for key, count in TRAINING.items() if key[0] == label}
        total = sum(powers.values())
        weights |= {key: share * power / total for key, power in powers.items()}
    return weights


def test_the_curve_is_that_of_a_plain_loop():
    curve = accuracy_under_shift(groups_of(TRUE), TRAINING)
    for place, exponent in enumerate(np.linspace(1, -1, 21)):
        expected = variance = 0.0
        for key, weight in shifted_weights(exponent).items():
            expected += weight * TRUE[key]
            variance += weight**2 * GroupAccuracy(*key, TRUE[key], 200).variance
        assert curve.accuracy[place] == pytest.approx(expected)
        assert curve.standard_error[place] == pytest.approx(np.sqrt(variance))
    np.testing.assert_allclose(curve.shift, np.linspace(0, 1, 21))


def test_the_error_band_holds_what_another_sample_gives():
    rng = np.random.default_rng(0)
    truth = accuracy_under_shift(groups_of(TRUE), TRAINING).accuracy
    inside = []
    for _ in range(400):
        drawn = {key: rng.binomial(80, share) / 80 for key, share in TRUE.items()}
        curve = accuracy_under_shift(groups_of(drawn, 80), TRAINING)
        inside.append(np.abs(curve.accuracy - truth) <= 2 * curve.standard_error)
    assert np.mean(inside, axis=0).min() > 0.92
    assert np.mean(inside, axis=0).max() < 0.99


def test_groups_that_are_missing_on_one_side():
    curve = accuracy_under_shift(groups_of(TRUE)[:3], {**TRAINING, ("cow", "sand"): 0})
    assert np.isfinite(curve.accuracy).all()
    assert curve.accuracy[-1] < curve.accuracy[0]
    assert "± one standard error" in curve.sentence()


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({("owl", "sand"): 3}, "none of the tested classes"),
        ({key: count / 150 for key, count in TRAINING.items()}, "holds shares"),
        ({**TRAINING, ("cow", "sand"): -1}, "negative or infinite"),
    ],
)
def test_a_mistake_is_a_sentence(training, message):
    with pytest.raises(ValueError, match=message):
        accuracy_under_shift(groups_of(TRUE), training)
