"""The feature decomposition network g: each feature of an embedding predicted from all the
others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType

import torch
from torch import Tensor, nn

from pfdl._internal.validation import check_choice, check_count, check_matrix
from pfdl.decorrelation.kernels import KERNELS, LeaveOneOut, choose_kernels, leave_one_out_mlp

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "leaky_relu": nn.LeakyReLU,
    "identity": nn.Identity,
}
SHARINGS = ("indexed", "strict")


class FeatureDecomposition(nn.Module):
    r"""The network g of Partial Feature Decorrelation Learning (Guo et al.).

    For a batch of embeddings U of shape (n, p) it returns Ũ of the same shape, where

    .. math:: \tilde U_{ij} = g(U_i \text{ without coordinate } j)

    is the *correlated part* of feature j: what the other features already say about it. The rest, U
    − Ũ, is the independent part. Ũ_ij does not depend on U_ij: that derivative is zero, not merely
    small, and on a CPU and on the plain path U_ij is not even read. The kernels of a GPU keep a
    running sum along the features, which leaves of a feature its rounding: one that is r times as
    large as the others has an error of about r·10⁻⁷ in its own correlated part, and no other
    feature has (:class:`pfdl.PartialDecorrelation` warns from r = 10⁴ on).

    All p predictions cost O(n·p·h), not O(n·p²·h), and large batches are worked off in chunks, so
    that the n·p·h hidden activations are never all in memory.

    Args:
        num_features: p, the width of the embedding, at least 2.
        hidden: Widths of the hidden layers, or one width for a single layer. ``()`` makes g linear.
        sharing: ``"strict"``: the paper's g, one network on the p−1 remaining coordinates that is
            not told which feature j it predicts. ``"indexed"``: g also gets j, through a learnt
            bias per feature in the first layer. Both cost the same. A strict g cannot distinguish
            features, so it explains much less of their variance.
        activation: ``"relu"``, ``"gelu"``, ``"silu"``, ``"tanh"``, ``"elu"``, ``"leaky_relu"`` or
            ``"identity"``.
        kernel: ``"auto"`` (default): for one hidden layer with ReLU or GELU the closed form, as
            fused Triton kernels on a GPU, in PyTorch on a CPU; for anything else the plain path,
            chunked PyTorch with autograd. Both give the same up to rounding. ``"plain"`` insists on
            the latter.

    Raises:
        ValueError, TypeError: If an argument cannot be used; the message says what would be right.

    Example:
        >>> import torch, pfdl
        >>> g = pfdl.FeatureDecomposition(num_features=5, hidden=16)
        >>> g(torch.zeros(3, 5)).shape
        torch.Size([3, 5])
    """

    def __init__(
        self,
        num_features: int,
        hidden: int | Sequence[int] = 256,
        *,
        sharing: str = "strict",
        activation: str = "relu",
        kernel: str = "auto",
    ) -> None:
        super().__init__()
        check_choice("kernel", kernel, KERNELS)
        check_count("num_features", num_features, 2)  # a feature is predicted from the others
        check_choice("sharing", sharing, SHARINGS)
        widths = [hidden] if isinstance(hidden, int) else list(hidden)
        for width in widths:
            check_count("a width in hidden", width, 1)
        check_choice("activation", activation, ACTIVATIONS)

        self.num_features = num_features
        self.hidden = tuple(widths)
        self.sharing = sharing
        self.kernel = kernel
        self.activation = ACTIVATIONS[activation]()

        outputs = [*widths, 1]
        first_width = outputs[0]
        if sharing == "indexed":
            self.first_weight = nn.Parameter(torch.empty(first_width, num_features))
            self.first_bias = nn.Parameter(torch.empty(num_features, first_width))
        else:
            self.first_weight = nn.Parameter(torch.empty(first_width, num_features - 1))
            self.first_bias = nn.Parameter(torch.empty(first_width))
        self.layers = nn.ModuleList(
            nn.Linear(fan_in, fan_out) for fan_in, fan_out in pairwise(outputs)
        )
        self.reset_parameters()

    @property
    def activation_name(self) -> str:
        """Return what the closed form calls the activation: ``"relu"`` or ``"gelu"``."""
        return type(self.activation).__name__.lower()

    def reset_parameters(self) -> None:
        """Draw new weights, as ``nn.Linear`` does."""
        bound = 1 / math.sqrt(self.num_features - 1)
        for parameter in (self.first_weight, self.first_bias):
            nn.init.uniform_(parameter, -bound, bound)
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            layer.reset_parameters()

    def forward(self, features: Tensor) -> Tensor:
        """Return the correlated part of ``features``.

        Args:
            features: Shape (n, p), floating point. The result has the dtype of g's parameters;
                under autocast too, because half precision is too coarse for the sums over many
                features.

        Returns:
            Ũ, shape (n, p).
        """
        check_matrix("features", features, self.num_features)
        dtype = self.first_weight.dtype
        kernels = choose_kernels(self.kernel, features, dtype, self.hidden, self.activation)
        with torch.autocast(features.device.type, enabled=False):
            if kernels is None:
                return self._plain(features.to(dtype))
            # Triton casts as it reads
            u = features.to(dtype) if features.device.type == "cpu" else features
            return self._closed_form(u, kernels)

    def _plain(self, u: Tensor) -> Tensor:
        layers = []
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            layers.append((layer.weight, layer.bias))
        return leave_one_out_mlp(u, self.first_weight.T, self.first_bias, layers, self.activation)

    def _closed_form(self, u: Tensor, kernels: ModuleType) -> Tensor:
        readout = self.layers[0]
        parameters = (self.first_weight, self.first_bias, readout.weight, readout.bias)
        correlated: Tensor = LeaveOneOut.apply(u, *parameters, kernels, self.activation_name)
        return correlated

    def extra_repr(self) -> str:
        """Show the settings that the sub-modules do not."""
        return f"{self.num_features}, hidden={self.hidden}, sharing={self.sharing!r}"
