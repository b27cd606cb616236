"""GroupDRO over groups, one class in one context each, against Sagawa et al.'s update written with
dictionaries.
"""

import copy
import math
from collections import Counter

import pytest
import torch

from pfdl.objectives.weightings import GroupDRO
from tests.states import equal


class Naive:
    """The authors' update (group_DRO, loss.py, LossComputer.compute_robust_loss) with one share per
    group.

    Each batch multiplies every share by exp(η × (the group's mean risk, 0 if absent, + C/√n)) and
    normalises; the loss is Σ_g q_g R_g over all groups, absent ones having R_g = 0. The logarithms
    of the shares are kept here, so that none underflows.
    """

    def __init__(self, counts, step_size, adjustment=0.0):
        self.counts = counts
        self.log_shares = {group: -math.log(len(counts)) for group in counts}
        self.step_size = step_size
        self.adjustment = adjustment

    def loss(self, risks, labels, environments):
        """Return the authors' loss and the sum of the shares of the groups that are present."""
        means = group_means(risks, labels, environments)
        for group, count in self.counts.items():
            risk = means[group].item() if group in means else 0.0
            self.log_shares[group] += self.step_size * (risk + self.adjustment / math.sqrt(count))
        self.normalize()
        loss = 0.0
        present = 0.0
        for group, mean in means.items():
            share = math.exp(self.log_shares[group])
            loss = loss + share * mean
            present += share
        return loss, present

    def normalize(self):
        most = max(self.log_shares.values())
        total = sum(math.exp(share - most) for share in self.log_shares.values())
        for group in self.log_shares:
            self.log_shares[group] -= most + math.log(total)


def group_means(risks, labels, environments):
    """The mean risk of each group that is there."""
    members = {}
    for risk, label, environment in zip(risks, labels, environments, strict=True):
        members.setdefault((label.item(), environment.item()), []).append(risk)
    return {group: sum(theirs) / len(theirs) for group, theirs in members.items()}


def count(labels, environments):
    return Counter(zip(labels.tolist(), environments.tolist(), strict=True))


def batch(seed, n=30):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (n,), generator=generator)
    environments = torch.randint(2, (n,), generator=generator)
    return 2 * torch.rand(n, generator=generator), labels, environments


@pytest.mark.parametrize("adjustment", [0.0, 2.0])
@pytest.mark.parametrize("renormalize", [True, False])
class TestFiveBatches:
    """Against the authors' update. Some groups are missing from the third batch, one that has a
    single training sample from all.
    """

    @pytest.fixture
    def steps(self, adjustment, renormalize):
        """Yield after each batch the weighting, the naive one, and what they gave."""
        _, labels, environments = batch(0, 200)
        labels[0] = 3
        naive = Naive(count(labels, environments), 0.5, adjustment)
        weighting = GroupDRO(step_size=0.5, adjustment=adjustment, renormalize=renormalize)
        weighting.prepare(labels, environments)

        def run():
            for seed in range(1, 6):
                drawn = batch(seed, 5 if seed == 3 else 30)
                weights = weighting(*drawn)
                yield weighting, naive, weights, drawn[0], naive.loss(*drawn)

        return run()

    def test_the_loss_is_that_of_the_authors(self, steps, renormalize):
        for _, _, weights, risks, (loss, present) in steps:
            expected = loss / present if renormalize else loss
            torch.testing.assert_close((weights * risks).mean(), expected, rtol=1e-4, atol=1e-6)

    def test_the_mean_weight_is_one_or_the_share_of_the_groups_that_are_there(
        self, steps, renormalize
    ):
        for _, _, weights, _, (_, present) in steps:
            expected = 1.0 if renormalize else present
            torch.testing.assert_close(weights.mean(), torch.tensor(expected))

    def test_the_shares_are_those_of_the_authors(self, steps):
        for weighting, naive, *_ in steps:
            for group, log_share in naive.log_shares.items():
                share = weighting.shares[group].item()
                assert share == pytest.approx(math.exp(log_share), rel=1e-4)


def test_a_share_too_small_for_float32_is_remembered():
    """Risks (0.01, 4, 4, 4) at step size 1: after 40 steps the first share is 5e-71, and it must
    not come back.
    """
    labels = torch.tensor([0, 0, 1, 1])
    environments = torch.tensor([0, 1, 0, 1])
    weighting = GroupDRO(step_size=1.0)
    naive = Naive(count(labels, environments), 1.0)
    risks = torch.tensor([0.01, 4.0, 4.0, 4.0])
    for _ in range(40):
        weighting(risks, labels, environments)
        naive.loss(risks, labels, environments)
    log_share = weighting.log_shares[0, 0].item()
    assert log_share < -150
    assert log_share == pytest.approx(naive.log_shares[0, 0], rel=1e-4)
    assert weighting.shares[0, 0] == 0
    # A batch of that group alone still has weights
    zeros = torch.tensor([0, 0])
    torch.testing.assert_close(weighting(torch.ones(2), zeros, zeros), torch.ones(2))


def test_the_adjustment_needs_the_sizes_of_the_groups():
    weighting = GroupDRO(adjustment=1.0)
    with pytest.raises(
        ValueError, match=r"adjustment is 1.0, which needs the sizes of the groups; call prepare"
    ):
        weighting(*batch(0))
    assert weighting.table.numel() == 0


RISKS = torch.tensor([5.0, 0.0, 0.0])
CLASSES = torch.tensor([0, 1, 1])


@pytest.mark.parametrize("context", [0, 3])
def test_with_one_context_there_is_nothing_to_be_robust_to(context):
    weighting = GroupDRO(step_size=1.0)
    for _ in range(2):
        weights = weighting(RISKS, CLASSES, torch.full((3,), context))
        torch.testing.assert_close(weights, torch.ones(3))
    # No group has learnt anything
    torch.testing.assert_close(weighting.shares[:, context], torch.tensor([0.5, 0.5]))


def test_classes_given_as_contexts_too_are_what_it_is_robust_to():
    weights = GroupDRO(step_size=1.0)(RISKS, CLASSES, CLASSES)
    assert weights[0] > 10 * weights[1]


def test_groups_that_come_later_join_with_an_average_share():
    weighting = GroupDRO(step_size=0.0)
    weighting(torch.ones(2), torch.tensor([0, 1]), torch.tensor([0, 0]))
    weighting(torch.ones(1), torch.tensor([2]), torch.tensor([3]))
    assert weighting.shares[2, 3].item() == pytest.approx(1 / 3)
    assert weighting.shares.sum().item() == pytest.approx(1)


def test_preparing_does_not_forget_loaded_shares():
    source = GroupDRO(step_size=0.5)
    resumed = GroupDRO(step_size=0.5)
    source(*batch(0))
    resumed.load_state_dict(source.state_dict())
    resumed.prepare(*batch(1)[1:])
    assert torch.equal(resumed.shares, source.shares)
    assert torch.equal(resumed(*batch(2)), source(*batch(2)))


@pytest.mark.parametrize(
    ("risks", "environments", "message"),
    [
        (torch.ones(3), torch.tensor([0, 1, -1]), "needs the context of every sample"),
        (
            torch.tensor([1.0, torch.nan, 1.0]),
            torch.tensor([0, 1, 1]),
            "one finite number per sample",
        ),
        (torch.ones(2), torch.tensor([0, 1, 1]), r"risks have shape \(2,\) for 3 samples"),
        (torch.full((3,), 3e38), torch.tensor([0, 1, 1]), "the shares of the groups overflow"),
    ],
)
def test_what_would_spoil_the_shares_is_refused(risks, environments, message):
    weighting = GroupDRO(step_size=2.0)
    weighting(*batch(0))
    before = copy.deepcopy(weighting.state_dict())
    with pytest.raises(ValueError, match=message):
        weighting(risks, torch.tensor([0, 1, 8]), environments)
    assert equal(weighting.state_dict(), before)


@pytest.mark.parametrize("log_shares", [torch.tensor([[-1.0, 0.5]]), torch.tensor([[-1.0]])])
def test_a_state_whose_shares_do_not_fit_its_table_is_refused(log_shares):
    state = {"table": torch.tensor([[3.0, 1.0]]), "log_shares": log_shares}
    with pytest.raises(ValueError, match="log_shares in the state do not fit its table"):
        GroupDRO().load_state_dict(state)
