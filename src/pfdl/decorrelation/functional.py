"""The losses of Partial Feature Decorrelation Learning as pure functions: what runs, as the paper
writes it.

Letters as in the paper: U is ``features`` (n, p), Ũ is ``correlated`` (n, p), its prediction by g
from the others. Every function takes a ``batch``, which says whose samples a mean is over: by
default these rows, under ``torch.distributed`` those of all processes
(:class:`pfdl.decorrelation.distributed.Batch`).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl._internal.validation import check_choice, check_features, check_matrix
from pfdl.decorrelation.distributed import Batch

CENTERINGS = ("none", "batch")

VARIANCE_FLOOR = 1e-5
"""What :func:`standardize` adds to each variance, as a part of the mean variance: features that are
dead stay small.
"""


class DecorrelationParts(NamedTuple):
    """What L_decorr would be if the mean product were only a product of means, or only a
    covariance.
    """

    level: Tensor
    covariance: Tensor


def decomposition_loss(
    features: Tensor, correlated: Tensor, *, batch: Batch | None = None
) -> Tensor:
    r"""Return how badly g predicts each feature from the others, the loss that trains g.

    .. math:: L_g = \frac{1}{np} \sum_{i,j} (U_{ij} - \tilde U_{ij})^2

    Args:
        features: U, shape (n, p).
        correlated: Ũ, shape (n, p).
        batch: Whose samples the mean is over; by default these.

    Returns:
        A scalar.

    Example:
        >>> import torch
        >>> decomposition_loss(
        ...     torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 0.0], [3.0, 2.0]])
        ... )
        tensor(2.)
    """
    _check(features, correlated)
    batch = batch or Batch(len(features))
    of_each_feature = batch.mean((features - correlated).square())
    return of_each_feature.mean()


def decorrelation_loss(
    features: Tensor, correlated: Tensor, *, center: str = "none", batch: Batch | None = None
) -> Tensor:
    r"""Return how strongly the correlated part of each feature is correlated with the other
    features.

    .. math::
        L_{decorr} = \frac1p \sum_j \Big(
        \frac{1}{n(p-1)} \sum_i \sum_{k \ne j} \tilde U_{ij} U_{ik} \Big)^2

    The sum over k stands inside the square, so that correlations of opposite sign cancel, and the
    cost is O(n·p).

    Args:
        features: U, shape (n, p) with n, p at least 2.
        correlated: Ũ, shape (n, p).
        center: ``"none"``, as the paper writes it (it assumes features of mean zero), or
            ``"batch"``: subtract the mean over the batch from U and Ũ, which makes a covariance of
            each product. Features after a ReLU are far from mean zero.
        batch: Whose samples the means are over; by default these.

    Returns:
        A scalar.

    Example:
        >>> import torch
        >>> u = torch.tensor([[1.0, 2.0, -1.0], [0.0, 1.0, 3.0]])
        >>> correlated = torch.tensor([[1.0, 0.0, 2.0], [1.0, 1.0, 0.0]])
        >>> decorrelation_loss(u, correlated)
        tensor(1.4583)
    """
    check_choice("center", center, CENTERINGS)
    _check(features, correlated, alone=batch is None)
    batch = batch or Batch(len(features))
    if center == "batch":
        # One centred factor would do on paper. In float32 the rounding of its mean, times a large
        # mean of the other factor, exceeds the covariance of features whose mean is thousands of
        # times their spread.
        features = features - batch.mean(features)
        correlated = correlated - batch.mean(correlated)
    mean_product = batch.mean(correlated * mean_of_others(features))
    return mean_product.square().mean()


def decorrelation_parts(
    features: Tensor, correlated: Tensor, *, batch: Batch | None = None
) -> DecorrelationParts:
    r"""Return the two parts of L_decorr.

    With the mean :math:`M_{ij} = \frac{1}{p-1} \sum_{k \ne j} U_{ik}` of the other features,
    L_decorr is the mean over j of :math:`c_j^2`, :math:`c_j = \operatorname{mean}_i \tilde U_{ij}
    M_{ij}`. Each :math:`c_j` is exactly a product of means plus a covariance,

    .. math:: c_j = \underbrace{\overline{\tilde U_j}\,\overline{M_j}}_{\text{level}}
        + \underbrace{\operatorname{cov}(\tilde U_j, M_j)}_{\text{covariance}},

    and each part is the loss with only that term. The covariance part is ``decorrelation_loss(...,
    center="batch")``.

    Args:
        features: U, shape (n, p) with n, p at least 2.
        correlated: Ũ, shape (n, p).
        batch: Whose samples the means are over; by default these.

    Returns:
        Two scalars, ``level`` and ``covariance``.

    Example:
        >>> import torch
        >>> u = torch.tensor([[1.0, 2.0, -1.0], [0.0, 1.0, 3.0]])
        >>> correlated = torch.tensor([[1.0, 0.0, 2.0], [1.0, 1.0, 0.0]])
        >>> decorrelation_parts(u, correlated)
        DecorrelationParts(level=tensor(0.9010), covariance=tensor(0.1302))
    """
    covariance = decorrelation_loss(features, correlated, center="batch", batch=batch)
    batch = batch or Batch(len(features))
    mean_correlated = batch.mean(correlated)
    level = mean_correlated * mean_of_others(batch.mean(features))
    return DecorrelationParts(level.square().mean(), covariance)


def standardize(features: Tensor, *, batch: Batch | None = None) -> Tensor:
    """Return the features with mean 0 and variance 1 over the batch, so that their scale counts for
    nothing.

    Args:
        features: U, shape (n, p) with n, p at least 2.
        batch: Whose samples means and variances are over; by default these.

    Returns:
        The same shape. A feature that is constant becomes 0: a small part of the mean variance is
        added to each.

    Example:
        >>> import torch
        >>> standardize(torch.tensor([[1.0, 20.0], [3.0, 40.0]])).round(decimals=1)
        tensor([[-1., -1.],
                [ 1.,  1.]])
    """
    _check(features, features, alone=batch is None)
    batch = batch or Batch(len(features))
    centred = features - batch.mean(features)
    variance = batch.mean(centred.square())
    floor = VARIANCE_FLOOR * variance.mean() + torch.finfo(features.dtype).tiny
    return centred * torch.rsqrt(variance + floor)


def mean_of_others(features: Tensor) -> Tensor:
    """Return for each feature the mean of the others in its row, shape (…, p), in O(n·p).

    The sum of those before it and of those after it, not the sum of all without it: a feature that
    is millions of times the others would leave its rounding behind.
    """
    from_left = features.cumsum(-1)
    from_right = features.flip(-1).cumsum(-1).flip(-1)
    before = F.pad(from_left[..., :-1], (1, 0))
    after = F.pad(from_right[..., 1:], (0, 1))
    others = features.shape[-1] - 1
    return (before + after) / others


def largest_feature(dtype: torch.dtype) -> float:
    """Return the largest value whose fourth power is finite, because L_decorr is of that order in
    the features.
    """
    return float(torch.finfo(dtype).max ** 0.25)


def _check(features: Tensor, correlated: Tensor, alone: bool = False) -> None:
    """Raise unless both are of one shape; rows that are alone, without other processes, must be two
    at least.
    """
    if alone:
        check_features("features", features)
    else:
        check_matrix("features", features)
    if features.shape != correlated.shape:
        raise ValueError(
            f"features have shape {tuple(features.shape)} but correlated has"
            f" {tuple(correlated.shape)}; they must be equal."
        )
