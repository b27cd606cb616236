"""The leave-one-out network with one hidden layer, in closed form: what is computed, whoever computes it.

For the common shape of g the first layer's pre-activations obey, with d_k = u_k − u_{k+1},

    indexed:  pre_j = base + offset_j − u_j W_j            base = Σ_k u_k W_k
    strict:   pre_j = state_j + offset                      state_{j+1} = state_j + d_j W_j

(W_k is the row of weights of coordinate k, the row index i of u is left out) and Ũ_j = v·act(pre_j) + c. With
G = ∂L/∂Ũ, δ_j = G_j v act'(pre_j), Δ = Σ_j δ_j and L_j = Σ_{k<j} δ_k the gradients are

    indexed:  ∂u_k = W_k·(Δ − δ_k)                          ∂W_k = Σ_i u_k (Δ − δ_k)
    strict:   ∂u_k = W_k·(Δ − L_{k+1}) + W_{k-1}·L_k        ∂W_k = Σ_i u_k Δ − d_k L_{k+1}

so each is one pass over (i, j, h) in which every pre-activation is made where it is used and then forgotten: nothing
of size n·p·h is ever written. ``Δ − δ_k`` is taken before it is multiplied and summed. Where only Ũ_k has a gradient,
Δ is δ_k to the last bit, and ∂Ũ_k/∂u_k is zero exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from pfdl.decorrelation.kernels.losses import FitErrors, PenaltyGradients, PenaltySums, TorchLosses

FUSED_ACTIVATIONS = ("relu", "gelu")
"""The activations that the closed form knows, by name; GELU is the exact one, with the error function."""


@dataclass(frozen=True)
class OneHidden:
    """A one-hidden-layer g and the rows it is applied to.

    Attributes:
        u: Features, shape (n, p), contiguous; any floating type on a GPU, the type of the weights elsewhere.
        weight: W by coordinate, shape (p, h) if indexed, (p − 1, h) if strict; contiguous.
        offset: Added to the pre-activations: shape (p, h) if indexed, (h,) if strict.
        readout: v, shape (h,).
        constant: c, shape (1,).
        strict: Whether coordinate j is removed (the paper's g) rather than masked.
        activation: ``"relu"`` or ``"gelu"``.
        shared: Added to the pre-activations of all features of a row, shape (n, h), or None.
    """

    u: Tensor
    weight: Tensor
    offset: Tensor
    readout: Tensor
    constant: Tensor
    strict: bool
    activation: str
    shared: Tensor | None = None

    def rows(self, some: slice) -> OneHidden:
        """Return the same network for some of the rows."""
        return replace(self, u=self.u[some], shared=None if self.shared is None else self.shared[some])


class ParameterGradients(NamedTuple):
    """Gradients in the shapes in which :class:`pfdl.FeatureDecomposition` keeps its parameters."""

    weight: Tensor  # (h, p) or (h, p - 1)
    offset: Tensor  # (p, h) or (h,)
    readout: Tensor  # (1, h)
    constant: Tensor  # (1,)
    shared: Tensor  # (n, h)


class Backend(Protocol):
    """Who computes the closed form. ``base`` is what ``predict`` leaves for the gradients, None if nothing."""

    @staticmethod
    def predict(net: OneHidden) -> tuple[Tensor, Tensor | None]:
        """Return Ũ, shape (n, p), and the base."""

    @staticmethod
    def parameter_gradients(net: OneHidden, base: Tensor | None, gradient: Tensor) -> ParameterGradients:
        """Return the gradients of g's parameters from G, shape (n, p)."""

    @staticmethod
    def feature_gradient(net: OneHidden, base: Tensor | None, gradient: Tensor, onto: Tensor | None = None) -> Tensor:
        """Return the gradient of u, shape (n, p), from G; added to ``onto``, which is overwritten, if that is given."""

    @staticmethod
    def fit_errors(u: Tensor, correlated: Tensor, total: int, limit: float) -> FitErrors:
        """See :class:`pfdl.decorrelation.kernels.losses.TorchLosses`."""

    @staticmethod
    def penalty_sums(u: Tensor, correlated: Tensor, means: Tensor | None) -> PenaltySums:
        """See :class:`pfdl.decorrelation.kernels.losses.TorchLosses`."""

    @staticmethod
    def penalty_gradients(
        u: Tensor, correlated: Tensor, sums: PenaltySums, means: Tensor | None, total: int, factor: float
    ) -> PenaltyGradients:
        """See :class:`pfdl.decorrelation.kernels.losses.TorchLosses`."""


class NoRows(TorchLosses):
    """The closed form for a batch without samples, such as one process of several may get."""

    @staticmethod
    def predict(net: OneHidden) -> tuple[Tensor, Tensor | None]:
        """Return no predictions."""
        return torch.empty_like(net.u, dtype=net.weight.dtype), None

    @staticmethod
    def parameter_gradients(net: OneHidden, base: Tensor | None, gradient: Tensor) -> ParameterGradients:
        """Return zeros."""
        h = net.weight.shape[1]
        zeros = net.weight.new_zeros
        return ParameterGradients(
            zeros(net.weight.T.shape), zeros(net.offset.shape), zeros(1, h), zeros(1), zeros(0, h)
        )

    @staticmethod
    def feature_gradient(net: OneHidden, base: Tensor | None, gradient: Tensor, onto: Tensor | None = None) -> Tensor:
        """Return no gradients."""
        return torch.empty_like(gradient)
