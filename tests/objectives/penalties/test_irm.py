import pytest
import torch
from torch.nn import functional as F

from pfdl.objectives.penalties import IRM


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


@pytest.mark.parametrize("classes", [2, 4])
def test_value_and_gradient_are_those_of_the_published_code(classes):
    logits, labels, environments = batch(classes)
    expected = sum(published_penalty(logits[environments == e], labels[environments == e]) for e in range(3)) / 3
    penalty = IRM(weight=7.0)(logits, labels, environments)
    torch.testing.assert_close(penalty, 7 * expected)
    ours, theirs = (torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (penalty, 7 * expected))
    torch.testing.assert_close(ours, theirs)


def test_a_column_of_logits_is_the_same_as_a_vector():
    logits, labels, environments = batch(2)
    assert IRM()(logits[:, None], labels.long(), environments) == IRM()(logits, labels, environments)


def test_it_vanishes_where_no_scale_would_do_better():
    """Logits at the log-odds of each environment's labels are optimal as they are."""
    labels = torch.tensor([1.0, 1.0, 1.0, 0.0] * 2)
    logits = torch.full((8,), 3.0, dtype=torch.float64).log()
    assert IRM()(logits, labels, torch.arange(8) // 4).item() == pytest.approx(0, abs=1e-24)


def test_the_weight_is_one_until_the_annealing_ends_and_evaluation_does_not_count():
    logits, labels, environments = batch(2)
    plain = IRM()(logits, labels, environments)
    penalty = IRM(weight=50.0, anneal=2)
    penalty.eval()
    torch.testing.assert_close(penalty(logits, labels, environments), plain)
    penalty.train()
    factors = [(penalty(logits, labels, environments) / plain).item() for _ in range(4)]
    assert factors == pytest.approx([1, 1, 50, 50])


def test_environments_must_be_one_per_sample():
    logits, labels, environments = batch(2)
    with pytest.raises(ValueError, match=r"environments have shape \(3,\) for \(11,\) samples"):
        IRM()(logits, labels, environments[:3])


def test_labels_must_be_one_per_row_of_logits():
    logits, labels, environments = batch(4)
    with pytest.raises(ValueError, match=r"logits have shape \(11, 4\) and labels \(10,\)"):
        IRM()(logits, labels[1:], environments)
