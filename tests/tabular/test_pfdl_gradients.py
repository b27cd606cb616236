"""The gradients of g on a table, made by hand, against autograd in double precision."""

from __future__ import annotations

import pytest
import torch

from pfdl.decorrelation.decomposition import FeatureDecomposition
from pfdl.decorrelation.functional import decomposition_loss
from pfdl.tabular import pfdl as pfdl_module


def naive_loss(g: FeatureDecomposition, features: torch.Tensor) -> torch.Tensor:
    """The definition: one network on the other columns, column by column."""
    parts = []
    for j in range(features.shape[1]):
        others = torch.cat([features[:, :j], features[:, j + 1 :]], dim=1)
        hidden = others @ g.first_weight.T + g.first_bias
        for layer in g.layers:
            hidden = layer(torch.relu(hidden))
        parts.append(hidden[:, 0])
    return decomposition_loss(features, torch.stack(parts, dim=1))


@pytest.mark.parametrize(("p", "hidden", "most"), [(2, 3, 2**24), (7, 5, 2**24), (7, 5, 1), (4, (5, 3), 2**24)])
def test_gradients_are_those_of_the_definition(p, hidden, most, monkeypatch):
    monkeypatch.setattr(pfdl_module, "_MOST_ELEMENTS", most)
    torch.manual_seed(0)
    g = FeatureDecomposition(p, hidden, sharing="strict").double()
    features = torch.randn(11, p, dtype=torch.float64)
    expected = naive_loss(g, features)
    gradients = torch.autograd.grad(expected, list(g.parameters()))
    for _ in range(2):  # a second call replaces the gradients of the first
        loss = pfdl_module.set_gradients(g, features)
    assert float(loss) == pytest.approx(expected.item(), rel=1e-12)
    for parameter, gradient in zip(g.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-10, atol=1e-14)
