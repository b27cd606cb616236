"""Both losses and their gradients at Ũ and at the features, in closed form: what is computed, and in plain PyTorch.

With n samples in all, t_j and ū_j the means of Ũ_j and u_j over them, s_i = Σ_k (u_ik − m_k) and
M_ij = (s_i − (u_ij − m_j)) / (p − 1), where m is ū if L_decorr centres the features and zero otherwise,

    L_g       = mean_ij (u_ij − Ũ_ij)²         ∂L_g/∂Ũ_ij      = 2 (Ũ_ij − u_ij) / np
    c_j       = Σ_i Ũ_ij M_ij / n
    L_decorr  = mean_j c_j²                    ∂L_decorr/∂Ũ_ij = 2 c_j M_ij / np
                                               ∂L_decorr/∂u_ik = 2 (Σ_j q_ij − q_ik) / np(p − 1)

with q_ij = c_j Ũ_ij, or c_j (Ũ_ij − t_j) if the features are centred; the last line is the part that does not pass
through g. All that several processes have to add up are sums over samples, before anything is squared.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class FitErrors(NamedTuple):
    """What step 1 needs of the errors of g."""

    gradient: Tensor  # of L_g at Ũ, (n, p)
    unexplained: Tensor  # this process's share of L_g of each feature, (p,)
    variance: Tensor  # of each feature over these rows, (p,)


class PenaltySums(NamedTuple):
    """What step 2 adds up over the samples."""

    columns: Tensor  # Σ_i Ũ_ij M_ij, Σ_i Ũ_ij and Σ_i u_ij, (3, p)
    rows: Tensor  # s_i, (n,)


class PenaltyGradients(NamedTuple):
    """L_decorr and its gradients at Ũ and, besides, at the features; both (n, p)."""

    loss: Tensor
    of_correlated: Tensor
    direct: Tensor


class TorchLosses:
    """The losses on any device; a backend with kernels of its own overrides these functions."""

    @staticmethod
    def fit_errors(u: Tensor, correlated: Tensor, total: int, limit: float) -> FitErrors:
        """Return the errors of g on rows out of ``total``; a feature beyond ``limit`` makes its column not a number."""
        missed = correlated - u
        unexplained = mark_beyond(missed.square().sum(0) / total, u, limit)
        variance = (u - u.mean(0)).square().mean(0)
        return FitErrors(missed.mul_(2 / (total * u.shape[1])), unexplained, variance)

    @staticmethod
    def penalty_sums(u: Tensor, correlated: Tensor, means: Tensor | None) -> PenaltySums:
        """Return the sums over these rows; ``means`` are those of all samples if the features are centred."""
        rows = (u if means is None else u - means).sum(1)
        products = correlated * _mean_of_others(u, rows, means)
        return PenaltySums(torch.stack([products.sum(0), correlated.sum(0), u.sum(0)]), rows)

    @staticmethod
    def penalty_gradients(
        u: Tensor, correlated: Tensor, sums: PenaltySums, means: Tensor | None, total: int, factor: float
    ) -> PenaltyGradients:
        """Return L_decorr and ``factor`` times its gradients at these rows, from the columns' sums over all samples."""
        p = u.shape[1]
        cross = sums.columns[0] / total
        slope = cross * (2 * factor / (p * total))
        deviations = correlated if means is None else correlated - sums.columns[1] / total
        through = deviations * (slope / (p - 1))
        direct = through.sum(1, keepdim=True) - through
        return PenaltyGradients(cross.square().mean(), _mean_of_others(u, sums.rows, means).mul_(slope), direct)


def mark_beyond(unexplained: Tensor, u: Tensor, limit: float) -> Tensor:
    """Return L_g of each feature, not a number for one with a value beyond the limit; infinity marks none."""
    if limit == float("inf"):
        return unexplained
    return torch.where((u.abs() <= limit).all(0), unexplained, torch.nan)


def _mean_of_others(u: Tensor, rows: Tensor, means: Tensor | None) -> Tensor:
    centred = u if means is None else u - means
    return (rows[:, None] - centred).div_(u.shape[1] - 1)
