import pytest
import torch
from torch.nn import functional as F

from pfdl.objectives.penalties import VREx


@pytest.mark.parametrize("num_environments", [2, 3])
def test_it_is_the_variance_of_the_environments_risks(num_environments):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(12, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(5, (12,), generator=generator)
    environments = torch.arange(12) % num_environments
    risks = [F.cross_entropy(logits[environments == e], labels[environments == e]) for e in range(num_environments)]
    mean = sum(risks) / num_environments
    expected = 3 * sum((risk - mean) ** 2 for risk in risks) / num_environments
    penalty = VREx(weight=3.0)(logits, labels, environments)
    torch.testing.assert_close(penalty, expected)
    ours, theirs = (torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (penalty, expected))
    torch.testing.assert_close(ours, theirs)


def test_one_environment_has_nothing_to_differ_from():
    assert VREx()(torch.tensor([1.0, -2.0]), torch.tensor([0.0, 1.0]), torch.tensor([4, 4])) == 0
