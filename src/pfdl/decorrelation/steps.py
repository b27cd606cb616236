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
from pfdl.decorrelation.kernels import OneHidden, mark_beyond


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
    """What step 2 found: weight × L_decorr, differentiable in the features; L_decorr; and in the paper's form sums.

    ``sums`` has the rows Σ_i Ũ_ij M_ij, Σ_i Ũ_ij and Σ_i u_ij over all samples, see
    :mod:`pfdl.decorrelation.kernels.losses`; what is logged is computed from them when it is read.
    """

    penalty: Tensor
    loss: Tensor
    sums: Tensor | None


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
        unexplained = variance = u
        for _ in range(self.algorithm.fit_steps):
            share, variance, *shares = self._fit_gradients(u)
            unexplained, *gradients = self.batch.sum_all([share, *shares])
            try:
                self.finiteness.update(optimizer, parameters, unexplained, gradients)
            except ValueError:
                if before is not None:
                    _put_back(before, parameters, optimizer)
                raise
        return Fitted(unexplained, variance if self.batch.processes == 1 else self.batch.variance(u))

    def penalise(self, weight: float) -> Penalised:
        """Compute weight × L_decorr with g frozen."""
        if self.kernels is None:
            correlated = self._frozen_prediction()
            loss, cross = self._equation(self.u, correlated)
            return Penalised(weight * loss, loss.detach(), self._sums(cross, correlated))
        loss, sums, gradient = self.penalty_and_gradient(self.u.requires_grad and torch.is_grad_enabled())
        penalty = weight * loss if gradient is None else with_gradient(self.u, loss, gradient, weight)
        return Penalised(penalty, loss, sums)

    def penalty_and_gradient(self, wants_gradient: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Compute by the closed form L_decorr, its sums, and its gradient at the features if that is wanted."""
        assert self.kernels is not None
        net = self.algorithm.decomposition.one_hidden(self.u)
        correlated, base = self.kernels.predict(net)
        if self.algorithm.form != "paper":
            # All processes go the same way, whether or not they want the gradient: making it exchanges numbers.
            if wants_gradient or self.batch.processes > 1:
                return self._pairwise(net, correlated, base)
            return self._equation(net.u, correlated).loss, None, None
        batch, centred = self.batch, self.algorithm.center == "batch"
        means = batch.mean(net.u) if centred else None
        here = self.kernels.penalty_sums(net.u, correlated, means)
        (columns,) = batch.sum_all([here.columns])
        if not wants_gradient:
            return (columns[0] / batch.total).square().mean(), columns, None
        # Each process returns the loss of all samples, and DistributedDataParallel averages: see Batch.sum.
        loss, of_correlated, direct = self.kernels.penalty_gradients(
            net.u, correlated, here._replace(columns=columns), means, batch.total, batch.processes
        )
        return loss, columns, self.kernels.feature_gradient(net, base, of_correlated, onto=direct)

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
        gradients = [torch.autograd.grad(loss, features, retain_graph=True)[0] for loss in losses]
        gradients = [gradient / self.batch.processes for gradient in gradients]
        (squares,) = self.batch.sum_all([torch.stack([gradient.square().sum() for gradient in gradients])])
        whole, level, covariance = gradients
        return GradientParts(whole, level, covariance, squares.sqrt())

    def _pairwise(self, net: OneHidden, correlated: Tensor, base: Tensor | None) -> tuple[Tensor, None, Tensor]:
        """Compute L_decorr in the form without sums, and its gradient at the features."""
        assert self.kernels is not None
        leaves = net.u.clone().requires_grad_(), correlated.requires_grad_()
        with torch.enable_grad():
            loss = self._equation(*leaves).loss
        direct, through_g = torch.autograd.grad(loss, leaves)
        return loss.detach(), None, self.kernels.feature_gradient(net, base, through_g.contiguous(), onto=direct)

    def _sums(self, cross: Tensor | None, correlated: Tensor) -> Tensor | None:
        """Return what :class:`Penalised` keeps, from the means c_j of the plain path."""
        if cross is None:
            return None
        totals = self.batch.sum_all([correlated.detach().sum(0), self.u.detach().sum(0)])
        return torch.stack([cross.detach() * self.batch.total, *totals])

    def _fit_gradients(self, u: Tensor) -> list[Tensor]:
        """Return L_g and the variance of each feature and the gradients of L_g, in g's order: this process's share."""
        g, limit = self.algorithm.decomposition, self.finiteness.limit(u.dtype)
        if self.kernels is None:
            leaves = {name: value.detach().requires_grad_() for name, value in g.named_parameters()}
            with torch.enable_grad():
                unexplained = unexplained_of(u, torch.func.functional_call(g, leaves, (u,)), self.batch)
                gradients = torch.autograd.grad(unexplained.mean(), list(leaves.values()))
            return [mark_beyond(unexplained.detach(), u, limit), u.var(0, correction=0), *gradients]
        net = g.one_hidden(u)
        correlated, base = self.kernels.predict(net)
        errors = self.kernels.fit_errors(net.u, correlated, self.batch.total, limit)
        found = self.kernels.parameter_gradients(net, base, errors.gradient)
        return [errors.unexplained, errors.variance, found.weight, found.offset, found.readout, found.constant]

    def _equation(self, u: Tensor, correlated: Tensor) -> Decorrelation:
        return decorrelation_of(u, correlated, self.algorithm.form, self.algorithm.center, self.batch)

    def _frozen_prediction(self) -> Tensor:
        """Return Ũ, differentiable in the features and in nothing of g."""
        g = self.algorithm.decomposition
        # g is frozen by copies: a later fit may change its parameters before this loss is differentiated.
        frozen = {name: value.detach().clone() for name, value in g.named_parameters()}
        correlated: Tensor = torch.func.functional_call(g, frozen, (self.u,))
        return correlated


def with_gradient(features: Tensor, loss: Tensor, gradient: Tensor, weight: float) -> Tensor:
    """Return ``weight * loss`` as a function of ``features`` that autograd can differentiate once.

    Args:
        features: What it is a function of.
        loss: Its value without the weight.
        gradient: The gradient of the loss at the features.
        weight: What both are multiplied by.
    """
    result: Tensor = _WithGradient.apply(features, loss, gradient, weight)
    return result


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, loss: Tensor, gradient: Tensor, weight: float) -> Tensor:
        ctx.gradient, ctx.weight = gradient, weight
        return weight * loss

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the fused penalty can be differentiated once only; for gradients of gradients construct it with "
                "kernel='plain'."
            )
        outer = outer if ctx.weight == 1 else outer * ctx.weight
        return outer * ctx.gradient, None, None, None


State = tuple[list[Tensor], dict[str, Any]]


def _copy_of(parameters: list[torch.nn.Parameter], optimizer: Optimizer) -> State:
    return [parameter.detach().clone() for parameter in parameters], copy.deepcopy(optimizer.state_dict())


def _put_back(before: State, parameters: list[torch.nn.Parameter], optimizer: Optimizer) -> None:
    with torch.no_grad():
        for parameter, value in zip(parameters, before[0], strict=True):
            parameter.copy_(value)
    optimizer.load_state_dict(before[1])
