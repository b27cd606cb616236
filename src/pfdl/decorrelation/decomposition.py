"""The feature decomposition network g: each feature of an embedding predicted from all the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from pfdl._internal.validation import check_choice, check_count, check_matrix, check_num_features
from pfdl.decorrelation.kernels import (
    KERNELS,
    Backend,
    NoRows,
    OneHidden,
    apply_one_hidden,
    choose_backend,
    lay_out,
    leave_one_out_mlp,
)

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

    is the *correlated part* of feature j: what the other features already say about it. The rest, U − Ũ, is the
    independent part. Ũ_ij does not depend on U_ij, exactly: that derivative is zero, not merely small.

    All p predictions cost O(n·p·h), not O(n·p²·h), and large batches are worked off in chunks that are recomputed
    in the backward pass, so that the n·p·h hidden activations are never all in memory.

    Args:
        num_features: p, the width of the embedding, at least 2.
        hidden: Widths of the hidden layers, or one width for a single layer. ``()`` makes g linear.
        sharing: ``"strict"``: the paper's g, one network on the p−1 remaining coordinates that is not told which
            feature j it predicts. ``"indexed"``: g also gets j, through a learnt bias per feature in the first layer.
            Both cost the same. A strict g cannot distinguish features, so it explains much less of their variance
            (``docs/method.md`` has the comparison).
        activation: Name of an activation or any elementwise callable; an ``nn.Module`` with parameters is fine.
        num_conditioning: Number of inputs that are visible whichever feature is predicted, for instance a label.
        max_elements: Floats that one hidden layer may hold at a time; by default chosen for the device. A number asks
            for the plain path.
        kernel: ``"auto"`` (default): for one hidden layer with ReLU or GELU the closed form, as fused Triton kernels
            on a GPU, in PyTorch on a CPU; for anything else the plain path, chunked PyTorch with autograd. Both give
            the same up to rounding. ``"fused"`` and ``"plain"`` insist on one of them.

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
        activation: str | Callable[[Tensor], Tensor] = "relu",
        num_conditioning: int = 0,
        max_elements: int | None = None,
        kernel: str = "auto",
    ) -> None:
        super().__init__()
        check_choice("kernel", kernel, KERNELS)
        check_num_features(num_features)
        check_choice("sharing", sharing, SHARINGS)
        check_count("num_conditioning", num_conditioning, 0)
        if max_elements is not None:
            check_count("max_elements", max_elements, 1)
        widths = [hidden] if isinstance(hidden, int) else list(hidden)
        for width in widths:
            check_count("a width in hidden", width, 1)
        if isinstance(activation, str):
            check_choice("activation", activation, ACTIVATIONS)
            activation = ACTIVATIONS[activation]()
        elif not callable(activation):
            raise TypeError(f"activation is {activation!r}; give a name or a callable of one tensor.")

        self.num_features = num_features
        self.hidden = tuple(widths)
        self.sharing = sharing
        self.num_conditioning = num_conditioning
        self.max_elements = max_elements
        self.kernel = kernel
        self.activation = activation

        visible = num_features if sharing == "indexed" else num_features - 1
        outputs = [*widths, 1]
        self.first_weight = nn.Parameter(torch.empty(outputs[0], visible))
        self.first_bias = nn.Parameter(
            torch.empty(num_features, outputs[0]) if sharing == "indexed" else torch.empty(outputs[0])
        )
        self.conditioning_weight = nn.Parameter(torch.empty(outputs[0], num_conditioning)) if num_conditioning else None
        self.layers = nn.ModuleList(nn.Linear(fan_in, fan_out) for fan_in, fan_out in pairwise(outputs))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, as ``nn.Linear`` does."""
        bound = 1 / math.sqrt(self.num_features - 1 + self.num_conditioning)
        for parameter in (self.first_weight, self.first_bias, self.conditioning_weight):
            if parameter is not None:
                nn.init.uniform_(parameter, -bound, bound)
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            layer.reset_parameters()

    def forward(self, features: Tensor, conditioning: Tensor | None = None) -> Tensor:
        """Return the correlated part of ``features``.

        Args:
            features: Shape (n, p), floating point. The result has the dtype of g's parameters; under autocast too,
                because half precision is too coarse for the sums over many features.
            conditioning: Shape (n, num_conditioning); required if, and only if, ``num_conditioning`` is positive.

        Returns:
            Ũ, shape (n, p).
        """
        check_matrix("features", features, self.num_features)
        with torch.autocast(features.device.type, enabled=False):
            backend = self.backend(features.device, len(features))
            if backend is None:
                return self._decompose(features.to(self.first_weight.dtype), conditioning)
            parameters = self._fused_parameters()
            shared = self._visible_to_all(features.to(self.first_weight.dtype), conditioning)
            return apply_one_hidden(
                features.to(self.first_weight.dtype) if features.device.type == "cpu" else features,
                parameters, shared, backend, self.sharing == "strict", str(self._fused_activation()), self._slow,
            )  # fmt: skip

    def backend(self, device: torch.device, rows: int) -> Backend | None:
        """Return who computes the closed form for so many rows on ``device``; None if the plain path runs."""
        kernel = "plain" if self.kernel == "auto" and self.max_elements is not None else self.kernel
        chosen = choose_backend(kernel, device, self.first_weight.dtype, self.hidden, self._fused_activation())
        return NoRows if chosen is not None and rows == 0 else chosen

    def one_hidden(self, u: Tensor) -> OneHidden:
        """Return the network and its rows laid out for a backend; ``u`` has the dtype of the parameters."""
        return lay_out(u, self._fused_parameters(), None, self.sharing == "strict", str(self._fused_activation()))

    def _fused_parameters(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        readout = self.layers[0]
        assert isinstance(readout, nn.Linear)
        return self.first_weight, self.first_bias, readout.weight, readout.bias

    def _fused_activation(self) -> str | None:
        activation = self.activation
        if type(activation) is nn.ReLU:
            return "relu"
        return "gelu" if type(activation) is nn.GELU and activation.approximate == "none" else None

    def _decompose(self, u: Tensor, conditioning: Tensor | None) -> Tensor:
        layers = [(layer.weight, layer.bias) for layer in self.layers if isinstance(layer, nn.Linear)]
        return self._plain(u, self.first_weight, self.first_bias, layers, self._visible_to_all(u, conditioning))

    def _slow(self, u: Tensor, parameters: tuple[Tensor, Tensor, Tensor, Tensor], shared: Tensor | None) -> Tensor:
        weight, offset, readout, constant = parameters
        return self._plain(u.to(weight.dtype), weight, offset, [(readout, constant)], shared)

    def _plain(
        self, u: Tensor, weight: Tensor, offset: Tensor, layers: Sequence[tuple[Tensor, Tensor]], shared: Tensor | None
    ) -> Tensor:
        weight = weight.T
        if self.sharing == "indexed":
            before = after = weight
        else:
            # Removing coordinate j shifts those after it by one place, so each has two weights.
            before = nn.functional.pad(weight, (0, 0, 0, 1))
            after = nn.functional.pad(weight, (0, 0, 1, 0))
        return leave_one_out_mlp(
            u,
            before,
            after,
            offset.expand(self.num_features, -1),
            layers,
            self._activation(),
            shared,
            self.max_elements,
        )

    def _visible_to_all(self, u: Tensor, conditioning: Tensor | None) -> Tensor | None:
        """Return what the conditioning inputs add to the first layer's pre-activations, shape (n, h)."""
        if self.conditioning_weight is None:
            if conditioning is not None:
                raise ValueError(
                    "conditioning was given but num_conditioning is 0; construct g with num_conditioning=..."
                )
            return None
        if conditioning is None:
            raise ValueError(f"num_conditioning is {self.num_conditioning} but no conditioning was given.")
        check_matrix("conditioning", conditioning)
        if conditioning.shape != (u.shape[0], self.num_conditioning):
            raise ValueError(
                f"conditioning has shape {tuple(conditioning.shape)}; "
                f"it must be ({u.shape[0]}, {self.num_conditioning}), one row per sample."
            )
        return nn.functional.linear(conditioning.to(u.dtype), self.conditioning_weight)

    def _activation(self) -> Callable[[Tensor], Tensor]:
        """Return the activation with its parameters bound now, for recomputation may happen after they have changed."""
        activation = self.activation
        if not isinstance(activation, nn.Module):
            return activation
        state: dict[str, Tensor] = dict(activation.named_parameters())
        if not state:
            return activation

        def bound(x: Tensor) -> Tensor:
            result: Tensor = torch.func.functional_call(activation, state, (x,))
            return result

        return bound

    def extra_repr(self) -> str:
        """Show the settings that the sub-modules do not."""
        return f"{self.num_features}, hidden={self.hidden}, sharing={self.sharing!r}"
