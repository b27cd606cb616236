"""GroupDRO over groups, one class in one context each, against Sagawa et al.'s update written with dictionaries."""

import math

import pytest
import torch

from pfdl import make_objective
from pfdl.objectives.weightings import GroupDRO


class Naive:
    """One share per group in a dictionary; each batch multiplies it by exp(η × the group's mean risk)."""

    def __init__(self, groups, step_size):
        self.shares = {group: 1 / len(groups) for group in groups}
        self.step_size = step_size

    def loss(self, risks, labels, environments):
        """The loss Σ_g q_g R_g over the groups of the batch, over the sum of their shares."""
        members = {}
        for i, group in enumerate(zip(labels.tolist(), environments.tolist(), strict=True)):
            members.setdefault(group, []).append(i)
        means = {group: sum(risks[i] for i in some) / len(some) for group, some in members.items()}
        for group, mean in means.items():
            self.shares[group] *= math.exp(self.step_size * mean.item())
        total = sum(self.shares.values())
        self.shares = {group: share / total for group, share in self.shares.items()}
        present = sum(self.shares[group] for group in means)
        return sum(self.shares[group] * mean for group, mean in means.items()) / present


def batch(seed, n=30):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (n,), generator=generator)
    environments = torch.randint(2, (n,), generator=generator)
    return 2 * torch.rand(n, generator=generator), labels, environments


def test_shares_and_loss_are_those_of_the_published_update():
    _, labels, environments = batch(0, 200)
    naive = Naive(sorted(set(zip(labels.tolist(), environments.tolist(), strict=True))), 0.5)
    weighting = GroupDRO(step_size=0.5)
    weighting.prepare(labels, environments)
    for seed in range(1, 6):
        risks, labels, environments = batch(seed, 5 if seed == 3 else 30)  # some groups are missing from the short one
        weights = weighting(risks, labels, environments)
        loss = naive.loss(risks, labels, environments)
        torch.testing.assert_close((weights * risks).mean(), loss, rtol=1e-4, atol=1e-6)
        for (label, environment), share in naive.shares.items():
            assert weighting.table[label, environment].item() == pytest.approx(share, rel=1e-4)
        torch.testing.assert_close(weights.mean(), torch.tensor(1.0))


def test_by_hand():
    """Two classes in one context each: mean risks 2 and 0.5, η = log 2, so shares go as 4 to √2."""
    weighting = GroupDRO(step_size=math.log(2))
    labels, environments = torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 0, 0])
    weights = weighting(torch.tensor([1.0, 3.0, 1.0, 0.0]), labels, environments)
    expected = torch.tensor([4.0, 4.0, math.sqrt(2), math.sqrt(2)])
    torch.testing.assert_close(weights, expected / expected.mean())
    assert weighting.table.shape == (2, 2)
    assert weighting.table[0, 0] == weighting.table[1, 1] == 0  # groups without samples have no share


def test_the_same_context_of_two_classes_is_two_groups():
    weighting = GroupDRO(step_size=1.0)
    weights = weighting(torch.tensor([5.0, 0.0, 0.0]), torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]))
    assert weights[0] > 10 * weights[1]


@pytest.mark.parametrize("context", [0, 3])
def test_with_one_context_there_is_nothing_to_be_robust_to(context):
    weighting = GroupDRO(step_size=1.0)
    for _ in range(2):
        weights = weighting(torch.tensor([5.0, 0.0, 0.0]), torch.tensor([0, 1, 1]), torch.full((3,), context))
        torch.testing.assert_close(weights, torch.ones(3))
    torch.testing.assert_close(weighting.table[:, context], torch.tensor([0.5, 0.5]))  # no group has learnt anything
    classes = torch.tensor([0, 1, 1])  # given as the contexts, too, they are what it is robust to
    weights = GroupDRO(step_size=1.0)(torch.tensor([5.0, 0.0, 0.0]), classes, classes)
    assert weights[0] > 10 * weights[1]


def test_groups_that_come_later_join_with_an_average_share():
    weighting = GroupDRO(step_size=0.0)
    weighting(torch.ones(2), torch.tensor([0, 1]), torch.tensor([0, 0]))
    weighting(torch.ones(1), torch.tensor([2]), torch.tensor([3]))
    assert weighting.table[2, 3].item() == pytest.approx(1 / 3)
    assert weighting.table.sum().item() == pytest.approx(1)


def test_evaluation_changes_nothing():
    weighting = GroupDRO()
    weighting(*batch(0))
    before = weighting.table.clone()
    weighting.eval()
    weighting(torch.tensor([9.0]), torch.tensor([7]), torch.tensor([1]))
    assert torch.equal(weighting.table, before)


def test_preparing_does_not_forget_loaded_shares():
    source, resumed = GroupDRO(step_size=0.5), GroupDRO(step_size=0.5)
    source(*batch(0))
    resumed.load_state_dict(source.state_dict())
    resumed.prepare(*batch(1)[1:])
    assert torch.equal(resumed.table, source.table)
    assert torch.equal(resumed(*batch(2)), source(*batch(2)))


@pytest.mark.parametrize(
    ("risks", "environments", "message"),
    [
        (torch.ones(3), torch.tensor([0, 1, -1]), "needs the context of every sample"),
        (torch.tensor([1.0, torch.nan, 1.0]), torch.tensor([0, 1, 1]), "one finite number per sample"),
        (torch.ones(2), torch.tensor([0, 1, 1]), r"risks have shape \(2,\) for 3 samples"),
        (torch.full((3,), 3e38), torch.tensor([0, 1, 1]), "the shares of the groups overflow"),
    ],
)
def test_what_would_spoil_the_shares_is_refused(risks, environments, message):
    weighting = GroupDRO(step_size=2.0)
    weighting(*batch(0))
    before = weighting.table.clone()
    with pytest.raises(ValueError, match=message):
        weighting(risks, torch.tensor([0, 1, 8]), environments)
    assert torch.equal(weighting.table, before)


def test_it_has_a_name_and_needs_contexts():
    objective = make_objective("groupdro", 4, groupdro={"step_size": 0.1})
    assert objective.needs_contexts
    assert objective.weighting.step_size == 0.1
    with pytest.raises(ValueError, match="step_size is -1"):
        GroupDRO(step_size=-1)
