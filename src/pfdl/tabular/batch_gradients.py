"""The gradient of g's own loss on a mini-batch of a table, without autograd.

A mini-batch of a table is small: n·p·h numbers fit the cache of a core, and a step of training takes as long as the
calls it makes. So the pre-activations are made once, kept, and turned into their own gradients in place.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pfdl.decorrelation.decomposition import FeatureDecomposition
from pfdl.decorrelation.functional import decomposition_loss

_MOST_ELEMENTS = 2**24


def set_gradients(g: FeatureDecomposition, features: Tensor) -> Tensor:
    """Give every parameter of a strict g the gradient of ``decomposition_loss(features, g(features))``.

    Args:
        g: A strict g with ReLUs and no conditioning.
        features: A batch of rows, shape (n, p).

    Returns:
        The loss.
    """
    if len(g.hidden) == 1 and features.numel() * g.hidden[0] <= _MOST_ELEMENTS:
        return _one_hidden(g, features)
    loss = decomposition_loss(features, g(features))
    g.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


@torch.no_grad()
def _one_hidden(g: FeatureDecomposition, features: Tensor) -> Tensor:
    """Walk along the features: from leaving out j to leaving out j + 1, one input of the first layer changes.

    The input at place j is then feature j, before it was feature j + 1; so the pre-activations move by
    (x_j − x_{j+1})·w_j, and back along the same path their gradients add up.
    """
    readout = g.layers[0]
    assert isinstance(readout, nn.Linear)
    n, p = features.shape
    columns = features.T.contiguous()
    moves = (columns[:-1] - columns[1:])[:, :, None]
    weight, slope = g.first_weight.T.contiguous(), readout.weight[0]
    hidden = features.new_empty(p, n, len(slope))
    places = hidden.unbind()
    torch.addmm(g.first_bias, features[:, 1:], weight, out=places[0])
    for j, (move, row) in enumerate(zip(moves.unbind(), weight.unbind(), strict=True)):
        torch.addcmul(places[j], move, row, out=places[j + 1])
    flat = hidden.relu_().view(p * n, -1)
    residual = torch.addmv(readout.bias, flat, slope) - columns.view(-1)
    loss = residual.square().mean()
    residual *= 2.0 / residual.numel()
    readout.weight.grad, readout.bias.grad = (residual @ flat)[None], residual.sum()[None]
    flat.sign_().mul_(slope).mul_(residual[:, None])
    for later, earlier in zip(places[:0:-1], places[-2::-1], strict=True):
        earlier += later
    g.first_bias.grad = places[0].sum(0)
    g.first_weight.grad = places[0].T @ features[:, 1:] + torch.bmm(moves.transpose(1, 2), hidden[1:])[:, 0].T
    return loss
