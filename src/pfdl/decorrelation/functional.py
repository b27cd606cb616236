"""The two losses of Partial Feature Decorrelation Learning as pure functions.

Letters as in the paper: U is ``features`` (n, p), Ũ is ``correlated`` (n, p), its prediction by g from the others.
"""

from __future__ import annotations

from torch import Tensor

from pfdl._internal.validation import check_choice, check_features
from pfdl.decorrelation.distributed import Batch

FORMS = ("paper", "pairwise")
CENTERINGS = ("none", "batch")


def decomposition_loss(features: Tensor, correlated: Tensor) -> Tensor:
    r"""How badly g predicts each feature from the others, the loss that trains g.

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
    return (features - correlated).square().mean()


def decorrelation_loss(features: Tensor, correlated: Tensor, *, form: str = "paper", center: str = "none") -> Tensor:
    r"""How strongly the correlated part of each feature still goes along with the other features.

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
    return decorrelation_of(features, correlated, form, center, Batch(len(features), features.device, False))


def decorrelation_of(features: Tensor, correlated: Tensor, form: str, center: str, batch: Batch) -> Tensor:
    """:func:`decorrelation_loss` of the union of the batches of all processes that take part."""
    if center == "batch":
        # Centring one factor centres the product: the mean of Ũ multiplies Σ_i (U_ik − mean) = 0.
        features = features - batch.sum(features.sum(0)) / batch.total
    return (_paper_form if form == "paper" else _pairwise_form)(features, correlated, batch)


def _paper_form(u: Tensor, correlated: Tensor, batch: Batch) -> Tensor:
    """(1/p) Σ_j ( mean_i Ũ_ij (T_i − U_ij) / (p−1) )² with T_i = Σ_k U_ik: no p×p matrix."""
    mean_of_others = (u.sum(1, keepdim=True) - u) / (u.shape[1] - 1)
    return (batch.sum((correlated * mean_of_others).sum(0)) / batch.total).square().mean()


def _pairwise_form(u: Tensor, correlated: Tensor, batch: Batch) -> Tensor:
    """(1/p) Σ_j Σ_{k≠j} C_jk², by the smaller of the two Gram matrices: Σ_jk C_jk² = ⟨ŨŨᵀ, UUᵀ⟩ / n²."""
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
