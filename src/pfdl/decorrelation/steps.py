"""The two steps of the algorithm for one batch of features, each with exactly the gradient it needs.

Step 1 wants the gradient of g's parameters, step 2 that of the features. With the closed form of g neither waits for a
backward pass: the gradient is made on the way, and g may change afterwards without touching it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from pfdl.decorrelation.decomposition import FeatureDecomposition
from pfdl.decorrelation.diagnostics import GradientParts
from pfdl.decorrelation.distributed import Batch
from pfdl.decorrelation.finiteness import Finiteness
from pfdl.decorrelation.functional import Decorrelation, decorrelation_of, levels_of, unexplained_of
from pfdl.decorrelation.kernels import Backend as Kernels


@dataclass(frozen=True)
class Algorithm:
    """What the two steps compute.

    Attributes:
        decomposition: g.
        optimizer: The optimiser of g.
        fit_steps: Updates of g for each batch.
        form: The form of L_decorr.
        center: How L_decorr centres the features.
    """

    decomposition: FeatureDecomposition
    optimizer: Optimizer
    fit_steps: int
    form: str
    center: str


class Fitted(NamedTuple):
    """What step 1 saw before its last update: L_g and the variance of each feature, shape (p,)."""

    unexplained: Tensor
    variance: Tensor


class Penalised(NamedTuple):
    """What step 2 found: L_decorr, differentiable in the features, and the two terms of each c_j, shape (p,)."""

    loss: Tensor
    levels: Tensor | None
    covariances: Tensor | None


class Steps:
    """Both steps on one batch, run as they are called.

    Args:
        algorithm: What to compute.
        u: The features, in the dtype of g's parameters, with the graph to the model that made them.
        batch: Who takes part.
        kernels: Who computes the closed form of g; None for the plain path.
        finiteness: What keeps updates away that are not finite.
    """

    def __init__(
        self, algorithm: Algorithm, u: Tensor, batch: Batch, kernels: Kernels | None, finiteness: Finiteness
    ) -> None:
        self.algorithm = algorithm
        self.u = u
        self.batch = batch
        self.kernels = kernels
        self.finiteness = finiteness

    def fit(self) -> Fitted:
        """Update g on the detached features; an update that raises leaves g as it was before the first."""
        u, optimizer = self.u.detach(), self.algorithm.optimizer
        parameters = list(self.algorithm.decomposition.parameters())
        before = _copy_of(parameters, optimizer) if self.finiteness.raises and self.algorithm.fit_steps > 1 else None
        unexplained = u
        for _ in range(self.algorithm.fit_steps):
            share, *shares = self._fit_gradients(u)
            unexplained, *gradients = self.batch.sum_all([self.finiteness.marked(share, u), *shares])
            try:
                self.finiteness.before_update(optimizer, unexplained, gradients)
            except ValueError:
                if before is not None:
                    _put_back(before, parameters, optimizer)
                raise
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.contiguous()  # the fused Adam reads memory in order, whatever the strides
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return Fitted(unexplained, self.batch.variance(u))

    def penalise(self) -> Penalised:
        """Compute L_decorr with g frozen."""
        if self.kernels is None:
            correlated = self._frozen_prediction()
            return self._penalised(self._equation(self.u, correlated), correlated.detach())
        found, gradient = self.penalty_and_gradient(self.u.requires_grad and torch.is_grad_enabled())
        return found if gradient is None else found._replace(loss=with_gradient(self.u, found.loss, gradient))

    def penalty_and_gradient(self, wants_gradient: bool) -> tuple[Penalised, Tensor | None]:
        """Compute L_decorr by the closed form, and its gradient at the features if that is wanted."""
        assert self.kernels is not None
        u = self.u.detach()
        net = self.algorithm.decomposition.one_hidden(u)
        correlated, base = self.kernels.predict(net)
        # All processes go the same way, whether or not they want the gradient: making it exchanges numbers.
        if not (wants_gradient or self.batch.processes > 1):
            return self._penalised(self._equation(u, correlated), correlated), None
        leaves = u.clone().requires_grad_(), correlated.requires_grad_()
        with torch.enable_grad():
            loss, cross = self._equation(*leaves)
        direct, through_g = torch.autograd.grad(loss, leaves)
        gradient = direct + self.kernels.feature_gradient(net, base, through_g.contiguous())
        return self._penalised(Decorrelation(loss.detach(), cross), correlated.detach()), gradient

    def gradient_parts(self, features: Tensor) -> GradientParts:
        """Compute the gradients of L_decorr and of its parts at the features that ``u`` was made from."""
        with torch.enable_grad():
            correlated = self._frozen_prediction()
            levels = levels_of(self.batch.mean(self.u), self.batch.mean(correlated))
            losses = (
                self._equation(self.u, correlated).loss,
                levels.square().mean(),
                decorrelation_of(self.u, correlated, "paper", "batch", self.batch).loss,
            )
        gradients = (torch.autograd.grad(loss, features, retain_graph=True)[0] for loss in losses)
        return GradientParts(*(gradient / self.batch.processes for gradient in gradients))

    def _penalised(self, found: Decorrelation, correlated: Tensor) -> Penalised:
        """Split each c_j into a level and a covariance."""
        if found.cross is None:
            return Penalised(found.loss, None, None)
        cross = found.cross.detach()
        sums = self.batch.sum_all([self.u.detach().sum(0), correlated.sum(0)])
        levels = levels_of(*(total / self.batch.total for total in sums))
        # The levels are those of the features as they are, whether or not the loss centres them.
        return Penalised(found.loss, levels, cross if self.algorithm.center == "batch" else cross - levels)

    def _fit_gradients(self, u: Tensor) -> list[Tensor]:
        """Return L_g of each feature and the gradients of its mean, in g's order: this process's share."""
        g = self.algorithm.decomposition
        if self.kernels is None:
            leaves = {name: value.detach().requires_grad_() for name, value in g.named_parameters()}
            with torch.enable_grad():
                unexplained = unexplained_of(u, torch.func.functional_call(g, leaves, (u,)), self.batch)
                gradients = torch.autograd.grad(unexplained.mean(), list(leaves.values()))
            return [unexplained.detach(), *gradients]
        net = g.one_hidden(u)
        correlated, base = self.kernels.predict(net)
        with torch.enable_grad():
            unexplained = unexplained_of(u, correlated.requires_grad_(), self.batch)
            (gradient,) = torch.autograd.grad(unexplained.mean(), correlated)
        found = self.kernels.parameter_gradients(net, base, gradient.contiguous())
        return [unexplained.detach(), found.weight, found.offset, found.readout, found.constant]

    def _equation(self, u: Tensor, correlated: Tensor) -> Decorrelation:
        return decorrelation_of(u, correlated, self.algorithm.form, self.algorithm.center, self.batch)

    def _frozen_prediction(self) -> Tensor:
        """Return Ũ, differentiable in the features and in nothing of g."""
        g = self.algorithm.decomposition
        # g is frozen by copies: a later fit may change its parameters before this loss is differentiated.
        frozen = {name: value.detach().clone() for name, value in g.named_parameters()}
        correlated: Tensor = torch.func.functional_call(g, frozen, (self.u,))
        return correlated


def with_gradient(features: Tensor, loss: Tensor, gradient: Tensor) -> Tensor:
    """Return ``loss`` as a function of ``features`` that autograd can differentiate once; the gradient is given."""
    result: Tensor = _WithGradient.apply(features, loss, gradient)
    return result


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, loss: Tensor, gradient: Tensor) -> Tensor:
        ctx.gradient = gradient
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the fused penalty can be differentiated once only; for gradients of gradients construct it with "
                "kernel='plain'."
            )
        return outer * ctx.gradient, None, None


State = tuple[list[Tensor], dict[str, Any]]


def _copy_of(parameters: list[torch.nn.Parameter], optimizer: Optimizer) -> State:
    return [parameter.detach().clone() for parameter in parameters], copy.deepcopy(optimizer.state_dict())


def _put_back(before: State, parameters: list[torch.nn.Parameter], optimizer: Optimizer) -> None:
    with torch.no_grad():
        for parameter, value in zip(parameters, before[0], strict=True):
            parameter.copy_(value)
    optimizer.load_state_dict(before[1])
