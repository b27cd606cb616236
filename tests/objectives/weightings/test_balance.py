"""Balance: under its weights the environment tells nothing about the class."""

import pytest
import torch

from pfdl.objectives.weightings import Balance
from pfdl.objectives.weightings.balance import balancing_table


def batch(samples=200, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (samples,), generator=generator)
    other = torch.randint(4, (samples,), generator=generator)
    return labels, torch.where(torch.rand(samples, generator=generator) < 0.6, labels, other)


def naive(labels, environments, smoothing):
    contexts = environments.unique()
    weights = torch.zeros(len(labels))
    for label in labels.unique():
        of_class = labels == label
        mean_count = of_class.sum() / len(contexts)
        for context in contexts:
            group = of_class & (environments == context)
            weights[group] = 1 / (group.sum() + smoothing * mean_count)
        weights[of_class] /= weights[of_class].mean()
    return weights


@pytest.mark.parametrize("smoothing", [0.0, 0.25])
def test_the_weights_of_one_batch_are_those_of_the_definition(smoothing):
    labels, environments = batch()
    weighting = Balance(smoothing=smoothing)
    weights = weighting(labels, environments)
    torch.testing.assert_close(weights, naive(labels, environments, smoothing))
    size = weights.sum() ** 2 / weights.square().sum()
    torch.testing.assert_close(weighting.effective_sample_size, size)


def test_counts_grow_over_batches():
    labels, environments = batch()
    together = Balance()
    apart = Balance()
    together.prepare(labels, environments)
    for part in torch.arange(200).split(50):
        apart(labels[part], environments[part])
    torch.testing.assert_close(together.table, apart.table)


def test_once_prepared_a_sample_keeps_its_weight():
    labels, environments = batch()
    weighting = Balance()
    weighting(*batch(seed=1))  # what was counted before is forgotten
    weighting.prepare(labels, environments)
    whole = weighting(labels, environments)
    part = weighting(labels[:50], environments[:50])
    torch.testing.assert_close(part, whole[:50] / whole[:50].mean())
    assert weighting.table.sum() == 200


def test_classes_can_be_made_equal_too():
    labels, environments = batch()
    weights = Balance(equal_classes=True, smoothing=0.0)(labels, environments)
    sums = labels.bincount(weights)
    torch.testing.assert_close(sums / weights.sum(), torch.full((3,), 1 / 3, dtype=sums.dtype))


def test_equal_classes_in_one_context_weigh_by_the_inverse_of_their_counts():
    labels, _ = batch()
    weights = Balance(equal_classes=True)(labels, torch.zeros_like(labels))
    torch.testing.assert_close(weights, 200 / 3 / labels.bincount()[labels])


def test_samples_all_of_unknown_environment_weigh_one_and_are_not_counted():
    weighting = Balance()
    labels, _ = batch()
    assert torch.equal(weighting(labels, torch.full_like(labels, -1)), torch.ones(200))
    assert weighting.table.numel() == 0


def test_some_samples_of_unknown_environment_weigh_alike_and_are_not_counted():
    weighting = Balance()
    labels, environments = batch()
    environments[:10] = -1
    weights = weighting(labels, environments)
    assert weights[:10].unique().numel() == 1
    assert weighting.table.sum() == 190


def test_groups_first_seen_in_eval_mode_weigh_like_an_average_one_and_are_not_counted():
    weighting = Balance()
    labels, environments = batch()
    weighting.prepare(labels, environments)
    weights = weighting.eval()(torch.tensor([0, 5, 1]), torch.tensor([0, 9, 1]))
    assert weights.isfinite().all()
    assert weighting.table.shape == (3, 4)


@pytest.mark.parametrize(
    ("labels", "environments", "message"),
    [
        (torch.tensor([0, 1]), torch.tensor([0]), "2 labels and 1 environments"),
        (torch.tensor([[0, 1]]), torch.tensor([0]), r"labels have shape \(1, 2\)"),
        (torch.tensor([0, 1]), [0, 1], "environments have type list"),
        (torch.tensor([-1, 1]), torch.tensor([0, 1]), "labels go down to -1"),
        (torch.tensor([0.5, 1.0]), torch.tensor([0, 1]), "must be whole numbers"),
        (torch.tensor([10**9, 1]), torch.tensor([0, 1]), "number both from 0 without gaps"),
    ],
)
def test_what_cannot_be_counted_is_named(labels, environments, message):
    with pytest.raises(ValueError, match=message):
        Balance()(labels, environments)
    with pytest.raises(ValueError, match=message):
        Balance().prepare(labels, environments)


def test_an_empty_cell_says_nothing():
    assert torch.isfinite(
        balancing_table(torch.tensor([[4.0, 0.0], [0.0, 0.0]]), smoothing=0.0)
    ).all()


def test_a_state_with_negative_counts_is_refused():
    weighting = Balance()
    with pytest.raises(ValueError, match="table in the state has negative numbers"):
        weighting.load_state_dict({"table": torch.tensor([[3.0, -1.0], [2.0, 2.0]])})
    assert weighting.table.numel() == 0


@pytest.mark.parametrize("smoothing", [0.0, 0.25])
def test_the_weights_of_a_class_have_a_mean_of_one_over_its_samples(smoothing):
    counts = torch.tensor([[6.0, 2.0, 0.0], [1.0, 3.0, 5.0]])
    table = balancing_table(counts, smoothing)
    torch.testing.assert_close((table * counts).sum(1) / counts.sum(1), torch.ones(2))
