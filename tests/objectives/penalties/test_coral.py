import pytest
import torch

from pfdl.objectives.penalties import CORAL, Quantization


def naive_coral(features, environments):
    p = features.shape[1]
    covariances = []
    for environment in sorted(set(environments.tolist())):
        rows = [features[i] for i in range(len(features)) if environments[i] == environment]
        mean = sum(rows) / len(rows)
        covariances.append(sum(torch.outer(row - mean, row - mean) for row in rows) / (len(rows) - 1))
    distances = []
    for a in range(len(covariances)):
        for b in range(a + 1, len(covariances)):
            distances.append(((covariances[a] - covariances[b]) ** 2).sum() / (4 * p**2))
    return sum(distances) / len(distances)


def test_values_and_gradients_are_those_of_the_definition():
    features = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    environments = torch.tensor([0, 0, 0, 4, 4, 4, 4, 2, 2, 2, 2, 2])
    fast, slow = CORAL(weight=3.0)(features, environments), 3 * naive_coral(features, environments)
    torch.testing.assert_close(fast, slow)
    torch.testing.assert_close(torch.autograd.grad(fast, features), torch.autograd.grad(slow, features))


def test_one_environment_has_nothing_to_compare():
    features = torch.randn(3, 2, requires_grad=True)
    assert CORAL()(features, torch.zeros(3, dtype=torch.long)) == 0
    assert CORAL()(features, torch.tensor([0, 0, 1])) == 0  # the second has a single sample


def test_quantization_by_hand():
    features = torch.tensor([[1.0, -1.0], [0.5, 0.0]])
    assert Quantization(weight=2.0)(features).item() == pytest.approx(-2 * (1 + 1 + 0.25))
