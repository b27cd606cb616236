"""The level and the covariance part of the penalty, and its scale-free form, on every path."""

import pytest
import torch

from pfdl.decorrelation.functional import decorrelation_parts, standardize
from tests.decorrelation.reference import naive_decomposition, naive_decorrelation_loss
from tests.decorrelation.small_batches import batch, make

PATHS = {"fused": {}, "plain": {"kernel": "plain"}, "deep": {"hidden": (5, 4)}, "indexed": {"sharing": "indexed"}}


@pytest.mark.parametrize("center", ["none", "batch"])
@pytest.mark.parametrize("path", PATHS)
def test_the_last_call_knows_its_parts(path, center):
    penalty = make(center=center, **PATHS[path]).double()
    u = batch().double().requires_grad_()
    penalty(u)
    wanted = decorrelation_parts(u, penalty.decomposition(u))
    torch.testing.assert_close(penalty.last.level_part, wanted.level.detach())
    torch.testing.assert_close(penalty.last.covariance_part, wanted.covariance.detach())
    assert penalty.metrics()["level_part"] == penalty.last.level_part


@pytest.mark.parametrize("path", PATHS)
def test_standardised_features_enter_both_losses(path):
    penalty, twin = make(standardize=True, **PATHS[path]).double(), make(**PATHS[path]).double()
    u = batch().double().requires_grad_()
    v = standardize(u.detach()).requires_grad_()
    torch.testing.assert_close(penalty(u), twin(v))
    torch.testing.assert_close(penalty.last.r2, twin.last.r2)
    for found, wanted in zip(penalty.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(found, wanted)
    w = standardize(u)
    slow = naive_decorrelation_loss(w, naive_decomposition(twin.decomposition, w), "none")
    (wanted,) = torch.autograd.grad(slow, u)
    (found,) = torch.autograd.grad(penalty.penalty(u), u)
    torch.testing.assert_close(found, wanted)
    assert penalty.last.level_part < 1e-25
