"""The penalties on what differs between environments, and CNBB's, against transcriptions of their
definitions.
"""

from itertools import combinations

import pytest
import torch
from torch.nn import functional as F

from pfdl.objectives.penalties import CORAL, IRM, CovarianceDecorrelation, Quantization, VREx
from tests.decorrelation.reference import naive_decorrelation_loss


def published_penalty(logits, labels):
    """IRM's own code: the squared gradient of the mean risk with respect to a dummy scale."""
    scale = torch.tensor(1.0, dtype=logits.dtype, requires_grad=True)
    if logits.ndim == 1:
        risk = F.binary_cross_entropy_with_logits(logits * scale, labels)
    else:
        risk = F.cross_entropy(logits * scale, labels)
    (gradient,) = torch.autograd.grad(risk, [scale], create_graph=True)
    return gradient.square()


def batch(classes):
    generator = torch.Generator().manual_seed(5)
    environments = torch.tensor([0, 2, 2, 0, 1, 2, 1, 0, 0, 1, 1])
    if classes == 2:
        logits = torch.randn(11, generator=generator, dtype=torch.float64)
        labels = torch.randint(2, (11,), generator=generator).double()
    else:
        logits = torch.randn(11, classes, generator=generator, dtype=torch.float64)
        labels = torch.randint(classes, (11,), generator=generator)
    return logits.requires_grad_(), labels, environments


def assert_same_gradient(ours, theirs, leaf):
    found = torch.autograd.grad(ours, leaf, retain_graph=True)
    wanted = torch.autograd.grad(theirs, leaf, retain_graph=True)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("classes", [2, 4])
def test_irm_is_that_of_the_published_code(classes):
    logits, labels, environments = batch(classes)
    members = [environments == number for number in range(3)]
    published = sum(published_penalty(logits[some], labels[some]) for some in members)
    expected = 7 * published / 3
    penalty = IRM(weight=7.0)(logits, labels, environments)
    torch.testing.assert_close(penalty, expected)
    assert_same_gradient(penalty, expected, logits)


def test_a_column_of_logits_is_the_same_as_a_vector():
    logits, labels, environments = batch(2)
    column = IRM()(logits[:, None], labels.long(), environments)
    assert column == IRM()(logits, labels, environments)


def test_the_weight_is_one_until_the_annealing_ends():
    given = batch(2)
    plain = IRM()(*given)
    penalty = IRM(weight=50.0, anneal=2)
    for factor in (1, 1, 50, 50):
        torch.testing.assert_close(penalty(*given), factor * plain)


def test_calls_in_eval_mode_do_not_count():
    given = batch(2)
    plain = IRM()(*given)
    penalty = IRM(weight=50.0, anneal=1).eval()
    for _ in range(2):
        torch.testing.assert_close(penalty(*given), plain)
    assert penalty.completed_calls == 0


def test_a_weight_below_one_is_switched_down_when_the_annealing_ends():
    given = batch(2)
    plain = IRM()(*given)
    penalty = IRM(weight=0.25, anneal=1)
    torch.testing.assert_close(penalty(*given), plain)
    torch.testing.assert_close(penalty(*given), 0.25 * plain)
    assert penalty.divisor() == 1


def test_the_count_of_calls_is_part_of_the_state():
    given = batch(2)
    first = IRM(weight=50.0, anneal=3)
    for _ in range(2):
        first(*given)
    resumed = IRM(weight=50.0, anneal=3)
    resumed.load_state_dict(first.state_dict())
    plain = IRM()(*given)
    factors = [(resumed(*given) / plain).item() for _ in range(2)]
    assert factors == pytest.approx([1, 50])


COMPARING = {
    "irm": lambda environments: IRM()(*batch(2)[:2], environments),
    "vrex": lambda environments: VREx()(*batch(2)[:2], environments),
    "coral": lambda environments: CORAL()(torch.ones(11, 2), environments),
}


@pytest.mark.parametrize("name", COMPARING)
@pytest.mark.parametrize(
    ("environments", "error", "message"),
    [
        (torch.arange(3), ValueError, r"environments have shape \(3,\) for 11 samples"),
        (torch.arange(11) - 1, ValueError, "environments go below 0, and −1 stands for unknown"),
        (torch.arange(11) / 2, TypeError, "environments have dtype torch.float32; give whole"),
        (list(range(11)), TypeError, "environments are a list"),
    ],
)
def test_environments_are_one_whole_number_from_0_per_sample(name, environments, error, message):
    with pytest.raises(error, match=message):
        COMPARING[name](environments)


def test_labels_are_one_per_sample():
    logits, labels, environments = batch(2)
    with pytest.raises(ValueError, match=r"logits have shape \(11,\) and labels \(10,\)"):
        IRM()(logits, labels[1:], environments)


@pytest.mark.parametrize("penalty", [IRM(), VREx(), CORAL()])
def test_a_batch_without_samples_is_refused(penalty):
    empty = {
        "logits": torch.empty(0, 3),
        "labels": torch.empty(0, dtype=torch.long),
        "features": torch.empty(0, 4),
        "environments": torch.empty(0, dtype=torch.long),
    }
    with pytest.raises(ValueError, match="the batch has no samples"):
        penalty(*(empty[name] for name in penalty.needs))


@pytest.mark.parametrize("num_environments", [1, 2, 3])
def test_vrex_is_the_variance_of_the_environments_risks(num_environments):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(12, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(5, (12,), generator=generator)
    environments = torch.arange(12) % num_environments
    members = [environments == number for number in range(num_environments)]
    risks = [F.cross_entropy(logits[some], labels[some]) for some in members]
    mean = sum(risks) / num_environments
    variance = sum((risk - mean) ** 2 for risk in risks) / num_environments
    penalty = VREx(weight=3.0)(logits, labels, environments)
    torch.testing.assert_close(penalty, 3 * variance)
    assert_same_gradient(penalty, 3 * variance, logits)


def naive_covariance(rows):
    mean = sum(rows) / len(rows)
    products = [torch.outer(row - mean, row - mean) for row in rows]
    return sum(products) / (len(rows) - 1)


def naive_coral(features, environments):
    covariances = []
    for environment in environments.unique():
        rows = [
            row for row, theirs in zip(features, environments, strict=True) if theirs == environment
        ]
        covariances.append(naive_covariance(rows))
    distances = [((a - b) ** 2).sum() for a, b in combinations(covariances, 2)]
    p = features.shape[1]
    return sum(distances) / len(distances) / (4 * p**2)


def coral_batch():
    generator = torch.Generator().manual_seed(8)
    features = torch.randn(12, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    return features, torch.tensor([0, 0, 0, 4, 4, 4, 4, 2, 2, 2, 2, 2])


def test_coral_is_that_of_the_definition():
    features, environments = coral_batch()
    fast = CORAL(weight=3.0)(features, environments)
    slow = 3 * naive_coral(features, environments)
    torch.testing.assert_close(fast, slow)
    assert_same_gradient(fast, slow, features)


def covariance_of_domainbed(x):
    centred = x - x.mean(0, keepdim=True)
    return centred.t() @ centred / (len(x) - 1)


def covariance_term_of_domainbed(features, environments):
    """The second term of MMD.mmd in DomainBed's algorithms.py, its mean over pairs."""
    groups = [features[environments == number] for number in environments.unique()]
    covariances = [covariance_of_domainbed(group) for group in groups]
    distances = [(x - y).pow(2).mean() for x, y in combinations(covariances, 2)]
    return sum(distances) / len(distances)


def test_four_times_its_weight_is_domainbeds_on_the_covariances():
    features, environments = coral_batch()
    ours = CORAL(weight=4.0)(features, environments)
    torch.testing.assert_close(ours, covariance_term_of_domainbed(features, environments))


def test_coral_of_one_environment_is_zero():
    features = torch.tensor([[1.0, 2.0], [0.0, 5.0], [3.0, 1.0]], requires_grad=True)
    assert CORAL()(features, torch.zeros(3, dtype=torch.long)) == 0
    assert CORAL()(features, torch.tensor([0, 0, 1])) == 0  # the second has a single sample


def test_quantization_by_hand():
    features = torch.tensor([[1.0, -1.0], [0.5, 0.0]])
    assert Quantization(weight=2.0)(features).item() == pytest.approx(-2 * (1 + 1 + 0.25))


@pytest.mark.parametrize("sharing", ["strict", "indexed"])
def test_covariances_are_followed_as_strongly_as_the_whole_of_l_decorr(sharing):
    torch.manual_seed(0)
    penalty = CovarianceDecorrelation(6, 0.5, hidden=4, sharing=sharing).double()
    features = torch.randn(16, 6, dtype=torch.float64).relu().requires_grad_()
    for _ in range(3):
        value = penalty(features)
    (gradient,) = torch.autograd.grad(value, features)
    correlated = penalty.decomposition(features)
    whole = naive_decorrelation_loss(features, correlated, "none")
    covariance = naive_decorrelation_loss(features, correlated, "batch")
    (of_whole,) = torch.autograd.grad(whole, features, retain_graph=True)
    (of_covariance,) = torch.autograd.grad(covariance, features)
    matched = of_whole.norm() / of_covariance.norm()
    assert matched > 1
    torch.testing.assert_close(gradient, 0.5 * matched * of_covariance)
    torch.testing.assert_close(value.detach(), 0.5 * matched * covariance.detach())
    torch.testing.assert_close(penalty.metrics()["matched_weight"], matched)


def test_covariances_that_are_lost_in_rounding_are_not_followed():
    penalty = CovarianceDecorrelation(4, hidden=4)
    features = torch.full((8, 4), 3.0, requires_grad=True)
    value = penalty(features)
    value.backward()
    assert value == penalty.matched_weight == 0
    assert not features.grad.any()
