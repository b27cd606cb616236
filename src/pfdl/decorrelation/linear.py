"""Every feature predicted from all the others by ridge regression, on samples left out of the fit, in closed form.

Letters: Z (n, p) are the features, centred and scaled to variance 1; A = ZᵀZ + λI, K = A⁻¹, W = ZK. By the inverse of a
matrix in blocks, one K answers for all p regressions and all n samples left out:

* the coefficients of feature j on the others are −K_kj / K_jj, so its residuals are W_ij / K_jj;
* the leverage of sample i in that regression is z_iᵀKz_i − W_ij² / K_jj, plus 1/n for the mean;
* leaving a sample out divides its residual by one minus its leverage.

So the cost is O(n·p·min(n, p)), not that of n·p regressions. g is linear here, which is what makes it exact: no
training, no seed, and no sample is held back. A network may find more, where features are not linear in each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""λ/n that are tried; the one with the smallest error on samples left out is taken, one for all features."""

_CONSTANT = 1e-9
"""A standard deviation below this part of a feature's largest value is rounding."""


@dataclass(frozen=True, eq=False)
class LeftOut:
    """What the other features say about each feature of a sample that they were not fitted to.

    Attributes:
        r2: One minus the squared error of the prediction over that of the mean, both of samples left out, shape (p,).
            Negative where the others are worse than the mean; NaN for a feature that is constant.
        observed: Z, of the features that vary, shape (n, v).
        predicted: The prediction of Z, shape (n, v): the correlated part.
        varies: Mask of the features that vary, shape (p,).
        used: Mask of the samples that could be left out, shape (n,): all but those alone in their group.
        scale: What the features that vary were divided by, shape (v,).
        coefficients: Of feature j on the others in column j, shape (v, v), the diagonal zero: Z times this predicts Z.
        ridge: The λ/n that was taken.
    """

    r2: FloatArray
    observed: FloatArray
    predicted: FloatArray
    varies: NDArray[np.bool_]
    used: NDArray[np.bool_]
    scale: FloatArray
    coefficients: FloatArray
    ridge: float


def predict_left_out(features: FloatArray, groups: NDArray[np.intp] | None = None) -> LeftOut:
    """Predict each feature of each sample from its other features, by a fit to all other samples.

    Args:
        features: Shape (n, p).
        groups: For each sample the number of its group, shape (n,): every group has a mean of its own, so that what is
            measured happens within the groups. By default all samples are one group.

    Returns:
        The predictions and their R². Features are scaled by all samples, which no fit leaves out.
    """
    groups = np.zeros(len(features), dtype=np.intp) if groups is None else groups
    sizes = np.bincount(groups)[groups].astype(np.float64)
    used = sizes > 1
    centred = features - group_means(features, groups)[groups]
    deviation = np.sqrt(np.mean(centred**2, axis=0))
    varies = deviation > _CONSTANT * np.abs(features).max(axis=0, initial=0.0)
    z = centred[:, varies] / deviation[varies]
    spectrum = _Spectrum.of(z)
    of_mean = sizes[used, None] / (sizes[used, None] - 1) * z[used]  # what the mean of the others misses

    def residuals(ridge: float) -> FloatArray:
        w, diagonal = spectrum.w(ridge * len(z)), spectrum.diagonal(ridge * len(z))
        leverage = np.sum(w * z, axis=1, keepdims=True) - w**2 / diagonal
        left: FloatArray = (w / diagonal)[used] / (1 - 1 / sizes[:, None] - leverage)[used]
        return left

    ridge = min(RIDGES, key=lambda candidate: float(np.sum(residuals(candidate) ** 2)))
    missed = residuals(ridge)
    r2 = np.full(features.shape[1], np.nan)
    r2[varies] = 1 - np.sum(missed**2, axis=0) / np.sum(of_mean**2, axis=0)
    predicted = np.zeros_like(z)
    predicted[used] = z[used] - missed
    return LeftOut(r2, z, predicted, varies, used, deviation[varies], spectrum.coefficients(ridge * len(z)), ridge)


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """Z = L·diag(s)·Vᵀ with v = min(n, p) terms, from the smaller of its two Gram matrices."""

    left: FloatArray
    values: FloatArray
    vectors: FloatArray

    @classmethod
    def of(cls, z: FloatArray) -> _Spectrum:
        from scipy.linalg import eigh

        n, p = z.shape
        squares, basis = eigh(z.T @ z if p <= n else z @ z.T)
        keep = squares > max(n, p) * np.finfo(float).eps * squares.max(initial=0.0)
        values, basis = np.sqrt(squares[keep]), basis[:, keep]
        other = (z @ basis if p <= n else z.T @ basis) / values
        return cls(other, values, basis) if p <= n else cls(basis, values, other)

    def w(self, penalty: float) -> FloatArray:
        """Return W = ZK."""
        result: FloatArray = (self.left * (self.values / (self.values**2 + penalty))) @ self.vectors.T
        return result

    def diagonal(self, penalty: float) -> FloatArray:
        """Return the diagonal of K."""
        result: FloatArray = 1 / penalty + self.vectors**2 @ self._beyond(penalty)
        return result

    def coefficients(self, penalty: float) -> FloatArray:
        """Return −K_kj / K_jj with zeros on the diagonal."""
        precision = (self.vectors * self._beyond(penalty)) @ self.vectors.T  # off the diagonal
        result: FloatArray = -precision / self.diagonal(penalty)
        np.fill_diagonal(result, 0.0)
        return result

    def _beyond(self, penalty: float) -> FloatArray:
        """Return what K has in the directions of V beyond the 1/λ that it has everywhere."""
        result: FloatArray = 1 / (self.values**2 + penalty) - 1 / penalty
        return result


def group_means(features: FloatArray, groups: NDArray[np.intp], number: int | None = None) -> FloatArray:
    """Return the mean of each group, shape (groups, p); zero for a group without samples.

    Args:
        features: Shape (n, p).
        groups: For each sample the number of its group, shape (n,).
        number: How many groups there are, if the last may be empty.
    """
    members = np.eye(number or groups.max(initial=0) + 1)[groups]
    means: FloatArray = (members.T @ features) / members.sum(axis=0)[:, None].clip(min=1)
    return means
