"""CVaR against the weights of Levy et al., by hand."""

import pytest
import torch

from pfdl.objectives.weightings import CVaR


@pytest.mark.parametrize(
    ("share", "expected"),
    [(1.0, [1, 1, 1, 1]), (0.5, [0, 2, 0, 2]), (0.3, [0, 4 * (1 - 1 / 1.2), 0, 1 / 0.3])],
)
def test_cvar_is_the_mean_of_the_worst_samples(share, expected):
    """As RobustLoss(geometry="cvar") of Levy et al.: 1/(αn) for ⌊αn⌋ samples, what is left of 1 for
    the next.
    """
    weights = CVaR(share=share)(torch.tensor([0.1, 2.0, 0.2, 3.0]))
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float32))


def test_equal_risks_are_ranked_by_their_place():
    weights = CVaR(share=0.25)(torch.full((8,), 2.0))
    assert weights.tolist() == [4.0, 4.0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("risks", "error", "message"),
    [
        (torch.ones(2, 1), ValueError, r"risks have shape \(2, 1\); give one finite number"),
        (torch.tensor([1.0, torch.inf]), ValueError, "risks are not all finite"),
        ([1.0, 2.0], TypeError, "risks are a list"),
    ],
)
def test_what_cannot_be_ranked_is_refused(risks, error, message):
    with pytest.raises(error, match=message):
        CVaR()(risks)
