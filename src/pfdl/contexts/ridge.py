"""Every feature predicted from all the others by ridge regression, on samples left out of the fit,
in closed form.

Letters: Z (n, p) are the features, centred and scaled to variance 1; A = ZᵀZ + λI, K = A⁻¹, W = ZK.
By the inverse of a matrix in blocks, one K answers for all p regressions and all n samples left
out:

* the coefficients of feature j on the others are −K_kj / K_jj, so its residuals are W_ij / K_jj;
* the leverage of sample i in that regression is z_iᵀKz_i − W_ij² / K_jj, plus 1/n for the mean;
* leaving a sample out divides its residual by one minus its leverage.

So the cost is O(n·p·min(n, p)), not that of n·p regressions. g is linear here, which is what makes
it exact: no training, no seed, and no sample is held back. A network may find more, where features
are not linear in each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""λ/n that are tried; the one with the smallest error on samples left out is taken, one for all
features.
"""

CONSTANT = 1e-9
"""A standard deviation below this part of a feature's largest value is rounding."""


class RidgePredictions(NamedTuple):
    """What the other features say about each feature of a sample that they were not fitted to.

    Attributes:
        r2: One minus the squared error of the prediction over that of the mean, both of samples
            left out, shape (p,). Negative where the others are worse than the mean; NaN for a
            feature that is constant.
        coefficients: Of all samples, shape (p, v): centred features times this predict Z, the v
            features that vary, each from the others.
    """

    r2: FloatArray
    coefficients: FloatArray


def predict_left_out(
    features: FloatArray, groups: NDArray[np.intp] | None = None
) -> RidgePredictions:
    """Predict each feature of each sample from its other features, by a fit to all other samples.

    Args:
        features: Shape (n, p).
        groups: For each sample the number of its group, shape (n,): every group has a mean of its
            own, so that what is measured happens within the groups. Samples alone in their group
            cannot be left out and do not count. By default all samples are one group.

    Returns:
        R² and coefficients. Features are scaled by all samples, which no fit leaves out.
    """
    if groups is None:
        groups = np.zeros(len(features), dtype=np.intp)
    sizes = np.bincount(groups)[groups].astype(np.float64)[:, None]
    used = sizes[:, 0] > 1
    centred = features - group_means(features, groups)[groups]
    deviation = np.sqrt(np.mean(centred**2, axis=0))
    varies = deviation > CONSTANT * np.abs(features).max(axis=0, initial=0.0)
    z = centred[:, varies] / deviation[varies]
    parts = _decompose(z)

    def residuals(ridge: float) -> FloatArray:
        return _left_out_residuals(z, parts, ridge, sizes, used)

    ridge = min(RIDGES, key=lambda candidate: float(np.sum(residuals(candidate) ** 2)))
    # What the mean of the others misses
    of_mean = sizes[used] / (sizes[used] - 1) * z[used]
    r2 = np.full(features.shape[1], np.nan)
    r2[varies] = 1 - np.sum(residuals(ridge) ** 2, axis=0) / np.sum(of_mean**2, axis=0)
    coefficients = np.zeros((len(varies), z.shape[1]))
    coefficients[varies] = _coefficients(parts, ridge, len(z)) / deviation[varies, None]
    return RidgePredictions(r2, coefficients)


class _Parts(NamedTuple):
    """Z = L·diag(s)·Vᵀ with min(n, p) terms."""

    left: FloatArray
    values: FloatArray
    vectors: FloatArray


def _decompose(z: FloatArray) -> _Parts:
    """Decompose Z by the smaller of its two Gram matrices."""
    from scipy.linalg import eigh

    n, p = z.shape
    is_tall = p <= n
    squares, basis = eigh(z.T @ z if is_tall else z @ z.T)
    keep = squares > max(n, p) * np.finfo(float).eps * squares.max(initial=0.0)
    values = np.sqrt(squares[keep])
    basis = basis[:, keep]
    if is_tall:
        return _Parts(z @ basis / values, values, basis)
    return _Parts(basis, values, z.T @ basis / values)


def _inverse(parts: _Parts, penalty: float) -> tuple[FloatArray, FloatArray]:
    """Return what K has in the directions of V beyond the 1/λ that it has everywhere, and its
    diagonal.
    """
    beyond = 1 / (parts.values**2 + penalty) - 1 / penalty
    return beyond, 1 / penalty + parts.vectors**2 @ beyond


def _left_out_residuals(
    z: FloatArray, parts: _Parts, ridge: float, sizes: FloatArray, used: NDArray[np.bool_]
) -> FloatArray:
    """Return Z less its prediction by the fit without the sample, for the samples that are used.

    Args:
        z: The features, shape (n, v).
        parts: The decomposition of z.
        ridge: λ/n.
        sizes: Of the group of each sample, shape (n, 1).
        used: Which samples are not alone in their group, shape (n,).
    """
    penalty = ridge * len(z)
    _, diagonal = _inverse(parts, penalty)
    w = (parts.left * (parts.values / (parts.values**2 + penalty))) @ parts.vectors.T
    leverage = np.sum(w * z, axis=1, keepdims=True) - w**2 / diagonal
    left = 1 - 1 / sizes - leverage
    return np.asarray((w / diagonal)[used] / left[used])


def _coefficients(parts: _Parts, ridge: float, n: int) -> FloatArray:
    """Return those of each feature on the others, one column for each, shape (v, v)."""
    beyond, diagonal = _inverse(parts, ridge * n)
    coefficients = -((parts.vectors * beyond) @ parts.vectors.T) / diagonal
    np.fill_diagonal(coefficients, 0.0)
    return np.asarray(coefficients)


def group_means(features: FloatArray, groups: NDArray[np.intp]) -> FloatArray:
    """Return the mean of each group, shape (groups, p); zero for a group without samples.

    Args:
        features: Shape (n, p).
        groups: For each sample the number of its group, shape (n,).
    """
    members = np.eye(groups.max(initial=0) + 1)[groups]
    return np.asarray((members.T @ features) / members.sum(axis=0)[:, None].clip(min=1))
