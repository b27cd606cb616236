"""The losses of Partial Feature Decorrelation Learning as pure functions.

Letters as in the paper: U is ``features`` (n, p), Ũ is ``correlated`` (n, p), its prediction by g from the others.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pfdl._internal.validation import check_choice, check_features
from pfdl.decorrelation.distributed import Batch

FORMS = ("paper", "pairwise")
CENTERINGS = ("none", "batch")

VARIANCE_FLOOR = 1e-5
"""What :func:`standardize` adds to each variance, as a part of the mean variance: features that are dead stay small."""


class DecorrelationParts(NamedTuple):
    """What L_decorr would be if the mean product were only a product of means, or only a covariance."""

    level: Tensor
    covariance: Tensor


def decomposition_loss(features: Tensor, correlated: Tensor) -> Tensor:
    r"""Return how badly g predicts each feature from the others, the loss that trains g.

    .. math:: L_g = \frac{1}{np} \sum_{i,j} (U_{ij} - \tilde U_{ij})^2

    Args:
        features: U, shape (n, p).
        correlated: Ũ, shape (n, p).

    Returns:
        A scalar.

    Example:
        >>> import torch
        >>> decomposition_loss(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 0.0], [3.0, 2.0]]))
        tensor(2.)
    """
    _check_pair(features, correlated)
    return unexplained_of(features, correlated, Batch(len(features))).mean()


def decorrelation_loss(features: Tensor, correlated: Tensor, *, form: str = "paper", center: str = "none") -> Tensor:
    r"""Return how strongly the correlated part of each feature is correlated with the other features.

    With :math:`C_{jk} = \frac1n \sum_i \tilde U_{ij} U_{ik}`, the two forms are

    .. math::
        \text{paper:}\quad & L = \frac1p \sum_j \Big( \frac{1}{p-1} \sum_{k \ne j} C_{jk} \Big)^2 \\
        \text{pairwise:}\quad & L = \frac1p \sum_j \sum_{k \ne j} C_{jk}^2

    In the paper's form the sum over k stands inside the square, so that correlations of opposite sign cancel; it
    costs O(n·p). The pairwise form is zero only if every single one vanishes; it costs O(n·p·min(n, p)).

    Args:
        features: U, shape (n, p) with n, p at least 2.
        correlated: Ũ, shape (n, p).
        form: ``"paper"`` or ``"pairwise"``.
        center: ``"none"``, as the paper writes it (it assumes features of mean zero), or ``"batch"``: subtract each
            feature's mean over the batch, which turns C into a covariance. Features after a ReLU are far from mean
            zero.

    Returns:
        A scalar.

    Example:
        >>> import torch
        >>> u = torch.tensor([[1.0, 2.0, -1.0], [0.0, 1.0, 3.0]])
        >>> correlated = torch.tensor([[1.0, 0.0, 2.0], [1.0, 1.0, 0.0]])
        >>> decorrelation_loss(u, correlated)
        tensor(1.4583)
        >>> decorrelation_loss(u, correlated, form="pairwise")
        tensor(3.5000)
    """
    check_choice("form", form, FORMS)
    check_choice("center", center, CENTERINGS)
    check_features("features", features)
    _check_pair(features, correlated)
    return decorrelation_of(features, correlated, form, center, Batch(len(features))).loss


def decorrelation_parts(features: Tensor, correlated: Tensor) -> DecorrelationParts:
    r"""Return the two parts of L_decorr in the paper's form.

    With the mean :math:`M_{ij} = \frac{1}{p-1} \sum_{k \ne j} U_{ik}` of the other features, the paper's loss is the
    mean over j of :math:`c_j^2`, :math:`c_j = \operatorname{mean}_i \tilde U_{ij} M_{ij}`. Each :math:`c_j` is exactly
    a product of means plus a covariance,

    .. math:: c_j = \underbrace{\overline{\tilde U_j}\,\overline{M_j}}_{\text{level}}
        + \underbrace{\operatorname{cov}(\tilde U_j, M_j)}_{\text{covariance}},

    and each part is the loss with only that term. The covariance part is ``decorrelation_loss(..., center="batch")``.

    Args:
        features: U, shape (n, p) with n, p at least 2.
        correlated: Ũ, shape (n, p).

    Returns:
        Two scalars, ``level`` and ``covariance``.

    Example:
        >>> import torch
        >>> u = torch.tensor([[1.0, 2.0, -1.0], [0.0, 1.0, 3.0]])
        >>> correlated = torch.tensor([[1.0, 0.0, 2.0], [1.0, 1.0, 0.0]])
        >>> decorrelation_parts(u, correlated)
        DecorrelationParts(level=tensor(0.9010), covariance=tensor(0.1302))
    """
    check_features("features", features)
    _check_pair(features, correlated)
    batch = Batch(len(features))
    level = levels_of(batch.mean(features), batch.mean(correlated)).square().mean()
    return DecorrelationParts(level, decorrelation_of(features, correlated, "paper", "batch", batch).loss)


def standardize(features: Tensor) -> Tensor:
    """Return the features with mean 0 and variance 1 over the batch, so that their scale counts for nothing.

    Args:
        features: U, shape (n, p) with n, p at least 2.

    Returns:
        The same shape. A feature that is constant becomes 0: a small part of the mean variance is added to each.

    Example:
        >>> import torch
        >>> standardize(torch.tensor([[1.0, 20.0], [3.0, 40.0]])).round(decimals=1)
        tensor([[-1., -1.],
                [ 1.,  1.]])
    """
    check_features("features", features)
    return standardize_of(features, Batch(len(features)))


class Decorrelation(NamedTuple):
    """L_decorr, and in the paper's form the p means c_j whose mean square it is."""

    loss: Tensor
    cross: Tensor | None


def unexplained_of(u: Tensor, correlated: Tensor, batch: Batch) -> Tensor:
    """Return this process's share of the mean squared error of g for each feature, shape (p,); L_g is their mean."""
    return (u - correlated).square().sum(0) / batch.total


def decorrelation_of(u: Tensor, correlated: Tensor, form: str, center: str, batch: Batch) -> Decorrelation:
    """Return :func:`decorrelation_loss` of the union of the batches of all processes that take part."""
    if center == "batch":
        # Centring one factor centres the product: the mean of Ũ multiplies Σ_i (U_ik − mean) = 0.
        u = u - batch.mean(u)
    if form == "pairwise":
        return Decorrelation(_pairwise_form(u, correlated, batch), None)
    cross = batch.mean(correlated * mean_of_others(u))
    return Decorrelation(cross.square().mean(), cross)


def mean_of_others(u: Tensor) -> Tensor:
    """Return for each feature the mean of the others in its row, from the row's sum: no p×p matrix."""
    return (u.sum(-1, keepdim=True) - u) / (u.shape[-1] - 1)


def levels_of(mean_features: Tensor, mean_correlated: Tensor) -> Tensor:
    """Return the level term of each c_j from the means over the batch, shape (p,)."""
    return mean_correlated * mean_of_others(mean_features)


def standardize_of(u: Tensor, batch: Batch) -> Tensor:
    """Return :func:`standardize` by the means and variances of the union of all processes' batches."""
    centred = u - batch.mean(u)
    variance = batch.mean(centred.square())
    floor = VARIANCE_FLOOR * variance.mean() + torch.finfo(u.dtype).tiny
    return centred * torch.rsqrt(variance + floor)


def _pairwise_form(u: Tensor, correlated: Tensor, batch: Batch) -> Tensor:
    """Return (1/p) Σ_j Σ_{k≠j} C_jk², by the smaller of the two Gram matrices: Σ_jk C_jk² = ⟨ŨŨᵀ, UUᵀ⟩ / n²."""
    n, p = u.shape
    if n < p and batch.processes == 1:
        all_pairs = ((correlated @ correlated.T) * (u @ u.T)).sum() / n**2
        with_itself = (correlated * u).mean(0).square().sum()
        return (all_pairs - with_itself) / p
    # Over several processes it has to be C: the samples of different processes never meet.
    cross = batch.sum(correlated.T @ u) / batch.total
    return (cross - cross.diagonal().diag_embed()).square().sum() / p


def _check_pair(features: Tensor, correlated: Tensor) -> None:
    if features.shape != correlated.shape:
        raise ValueError(
            f"features have shape {tuple(features.shape)} but correlated has {tuple(correlated.shape)}; "
            "they must be equal."
        )
